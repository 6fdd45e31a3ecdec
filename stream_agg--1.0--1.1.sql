/* stream_agg--1.0--1.1.sql */
\echo Use "ALTER EXTENSION stream_agg UPDATE TO '1.1'" to load this file. \quit

--
-- Statements
--

--
-- Changing continuous views
--

--
-- Roles
--

--
-- Dump, restore, upgrade
--
