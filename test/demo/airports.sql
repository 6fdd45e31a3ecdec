-- The airports of the sample flights: an ordinary table for the demo's views to join.
-- Cut down to the 224 airports that test/data/flights-20k.jsonl.gz names, from the airport list of the
-- US government (data.gov, a work in the public domain) as kept by the vega-datasets collection;
-- the city and state of Marquette, missing there, are filled in.
CREATE TABLE airports (
    code  text PRIMARY KEY,
    city  text NOT NULL,
    state text NOT NULL
);

COPY airports FROM STDIN;
ABE	Allentown	PA
ABI	Abilene	TX
ABQ	Albuquerque	NM
ACT	Waco	TX
ADQ	Kodiak	AK
ALB	Albany	NY
AMA	Amarillo	TX
ANC	Anchorage	AK
APF	Naples	FL
ATL	Atlanta	GA
AUS	Austin	TX
AVL	Asheville	NC
AVP	Wilkes-Barre/Scranton	PA
AZO	Kalamazoo	MI
BDL	Windsor Locks	CT
BET	Bethel	AK
BFL	Bakersfield	CA
BGM	Binghamton	NY
BGR	Bangor	ME
BHM	Birmingham	AL
BIL	Billings	MT
BIS	Bismarck	ND
BMI	Bloomington	IL
BNA	Nashville	TN
BOI	Boise	ID
BOS	Boston	MA
BPT	Beaumont/Port Arthur	TX
BQN	Aguadilla	PR
BRO	Brownsville	TX
BRW	Barrow	AK
BTR	Baton Rouge	LA
BTV	Burlington	VT
BUF	Buffalo	NY
BUR	Burbank	CA
BWI	Baltimore	MD
BZN	Bozeman	MT
CAE	Columbia	SC
CAK	Akron	OH
CDV	Cordova	AK
CHA	Chattanooga	TN
CHS	Charleston	SC
CID	Cedar Rapids	IA
CLE	Cleveland	OH
CLL	College Station	TX
CLT	Charlotte	NC
CMH	Columbus	OH
CMI	Champaign/Urbana	IL
COS	Colorado Springs	CO
CRP	Corpus Christi	TX
CRW	Charleston	WV
CVG	Covington	KY
DAB	Daytona Beach	FL
DAL	Dallas	TX
DAY	Dayton	OH
DBQ	Dubuque	IA
DCA	Arlington	VA
DEN	Denver	CO
DFW	Dallas-Fort Worth	TX
DLH	Duluth	MN
DRO	Durango	CO
DSM	Des Moines	IA
DTW	Detroit	MI
DUT	Unalaska	AK
EGE	Eagle	CO
ELM	Elmira	NY
ELP	El Paso	TX
ERI	Erie	PA
EUG	Eugene	OR
EVV	Evansville	IN
EWR	Newark	NJ
EYW	Key West	FL
FAI	Fairbanks	AK
FAR	Fargo	ND
FAT	Fresno	CA
FAY	Fayetteville	NC
FCA	Kalispell	MT
FLL	Ft. Lauderdale	FL
FNT	Flint	MI
FSD	Sioux Falls	SD
FSM	Fort Smith	AR
FWA	Fort Wayne	IN
GEG	Spokane	WA
GFK	Grand Forks	ND
GGG	Longview	TX
GPT	Gulfport-Biloxi	MS
GRB	Green Bay	WI
GRR	Grand Rapids	MI
GSO	Greensboro	NC
GSP	Greer	SC
GTF	Great Falls	MT
GUC	Gunnison	CO
HDN	Hayden	CO
HLN	Helena	MT
HNL	Honolulu	HI
HOU	Houston	TX
HPN	White Plains	NY
HRL	Harlingen	TX
HSV	Huntsville	AL
IAD	Chantilly	VA
IAH	Houston	TX
ICT	Wichita	KS
ILE	Killeen	TX
ILM	Wilmington	NC
IND	Indianapolis	IN
ISP	Islip	NY
ITH	Ithaca	NY
ITO	Hilo	HI
JAC	Jackson	WY
JAN	Jackson	MS
JAX	Jacksonville	FL
JFK	New York	NY
JNU	Juneau	AK
KOA	Kailua/Kona	HI
KTN	Ketchikan	AK
LAN	Lansing	MI
LAS	Las Vegas	NV
LAW	Lawton	OK
LAX	Los Angeles	CA
LBB	Lubbock	TX
LEX	Lexington	KY
LFT	Lafayette	LA
LGA	New York	NY
LGB	Long Beach	CA
LIH	Lihue	HI
LIT	Little Rock	AR
LNK	Lincoln	NE
LRD	Laredo	TX
LSE	La Crosse	WI
MAF	Midland	TX
MBS	Saginaw	MI
MCI	Kansas City	MO
MCO	Orlando	FL
MDT	Harrisburg	PA
MDW	Chicago	IL
MEM	Memphis	TN
MFE	McAllen	TX
MFR	Medford	OR
MHT	Manchester	NH
MIA	Miami	FL
MKE	Milwaukee	WI
MLB	Melbourne	FL
MLI	Moline	IL
MLU	Monroe	LA
MOB	Mobile	AL
MOT	Minot	ND
MQT	Marquette	MI
MRY	Monterey	CA
MSN	Madison	WI
MSO	Missoula	MT
MSP	Minneapolis	MN
MSY	New Orleans	LA
MTJ	Montrose	CO
MYR	Myrtle Beach	SC
OAK	Oakland	CA
OGG	Kahului	HI
OKC	Oklahoma City	OK
OMA	Omaha	NE
OME	Nome	AK
ONT	Ontario	CA
ORD	Chicago	IL
ORF	Norfolk	VA
ORH	Worcester	MA
OTZ	Kotzebue	AK
PBI	West Palm Beach	FL
PDX	Portland	OR
PHL	Philadelphia	PA
PHX	Phoenix	AZ
PIA	Peoria	IL
PIT	Pittsburgh	PA
PNS	Pensacola	FL
PSC	Pasco	WA
PSG	Petersburg	AK
PSP	Palm Springs	CA
PVD	Providence	RI
PWM	Portland	ME
RAP	Rapid City	SD
RDU	Raleigh	NC
RIC	Richmond	VA
RNO	Reno	NV
ROA	Roanoke	VA
ROC	Rochester	NY
RST	Rochester	MN
RSW	Ft. Myers	FL
SAN	San Diego	CA
SAT	San Antonio	TX
SAV	Savannah	GA
SBA	Santa Barbara	CA
SBN	South Bend	IN
SBP	San Luis Obispo	CA
SCC	Deadhorse	AK
SDF	Louisville	KY
SEA	Seattle	WA
SFO	San Francisco	CA
SGF	Springfield	MO
SHV	Shreveport	LA
SIT	Sitka	AK
SJC	San Jose	CA
SJT	San Angelo	TX
SJU	San Juan	PR
SLC	Salt Lake City	UT
SMF	Sacramento	CA
SNA	Santa Ana	CA
SPS	Wichita Falls	TX
SRQ	Sarasota	FL
STL	St Louis	MO
STT	Charlotte Amalie	VI
STX	Christiansted	VI
SUX	Sioux City	IA
SWF	Newburgh	NY
SYR	Syracuse	NY
TLH	Tallahassee	FL
TOL	Toledo	OH
TPA	Tampa	FL
TRI	Bristol	TN
TUL	Tulsa	OK
TUS	Tucson	AZ
TVC	Traverse City	MI
TXK	Texarkana	AR
TYR	Tyler	TX
TYS	Knoxville	TN
VPS	Valparaiso	FL
WRG	Wrangell	AK
XNA	Fayetteville/Springdale/Rogers	AR
YAK	Yakutat	AK
\.
