-- Rows as TPC-H's rules describe them, made by arithmetic: the same on every server. SCALE stands for the number of suppliers; 100 are the benchmark's
-- scale 0.01. Words are fewer than there, so that each query finds rows at a small scale, too.
create function pg_temp.draw(key bigint, salt int, count bigint) returns bigint language sql immutable
    as 'select (hashint8extended($1, $2) & 9223372036854775807) % $3';
create function pg_temp.word(key bigint, salt int, words text) returns text language sql immutable
    as $$ select (string_to_array($3, ','))[1 + pg_temp.draw($1, $2, array_length(string_to_array($3, ','), 1))] $$;
create function pg_temp.color(key bigint, salt int) returns text language sql immutable as $$ select pg_temp.word($1, $2,
    'almond,azure,beige,blue,burlywood,chiffon,coral,cream,dark,dim,forest,ghost,green,honeydew,ivory,khaki,lace,linen,maroon,navy') $$;
create function pg_temp.phrase(key bigint, salt int) returns text language sql immutable as $$ select concat_ws(' ',
    pg_temp.word($1, $2, 'furiously,quickly,slyly,carefully,blithely'), pg_temp.word($1, $2 + 1, 'special,pending,unusual,express,final,bold'),
    pg_temp.word($1, $2 + 2, 'requests,packages,deposits,accounts,ideas')) $$;
create function pg_temp.phone(nation bigint, key bigint) returns text language sql immutable as $$ select concat_ws('-', $1 + 10,
    100 + pg_temp.draw($2, 3, 900), 100 + pg_temp.draw($2, 4, 900), 1000 + pg_temp.draw($2, 5, 9000)) $$;

insert into region select k, (string_to_array('AFRICA,AMERICA,ASIA,EUROPE,MIDDLE EAST', ','))[k + 1], pg_temp.phrase(k, 10) from generate_series(0, 4) k;
insert into nation select k - 1, split_part(v, ':', 1), split_part(v, ':', 2)::int, pg_temp.phrase(k, 20) from unnest(string_to_array('ALGERIA:0,ARGENTINA:1,'
    'BRAZIL:1,CANADA:1,EGYPT:4,ETHIOPIA:0,FRANCE:3,GERMANY:3,INDIA:2,INDONESIA:2,IRAN:4,IRAQ:4,JAPAN:2,JORDAN:4,KENYA:0,MOROCCO:0,MOZAMBIQUE:0,PERU:1,'
    'CHINA:2,ROMANIA:3,SAUDI ARABIA:4,VIETNAM:2,RUSSIA:3,UNITED KINGDOM:3,UNITED STATES:1', ',')) with ordinality as n (v, k);
insert into supplier select k, 'Supplier#' || lpad(k::text, 9, '0'), 'address ' || pg_temp.draw(k, 30, 1000000), n, pg_temp.phone(n, k),
    (pg_temp.draw(k, 31, 1099999) - 99999) / 100.0,
    case k % 25 when 3 then 'Customer ' || pg_temp.phrase(k, 32) || ' Complaints' else pg_temp.phrase(k, 32) end
    from generate_series(1, SCALE) k, lateral (select pg_temp.draw(k, 35, 25)) x (n);
insert into customer select k, 'Customer#' || lpad(k::text, 9, '0'), 'address ' || pg_temp.draw(k, 40, 1000000), n, pg_temp.phone(n, k),
    (pg_temp.draw(k, 41, 1099999) - 99999) / 100.0, pg_temp.word(k, 42, 'AUTOMOBILE,BUILDING,FURNITURE,MACHINERY,HOUSEHOLD'), pg_temp.phrase(k, 43)
    from generate_series(1, SCALE * 15) k, lateral (select pg_temp.draw(k, 46, 25)) x (n);
insert into part select k, concat_ws(' ', pg_temp.color(k, 50), pg_temp.color(k, 51), pg_temp.color(k, 52), pg_temp.color(k, 53), pg_temp.color(k, 54)),
    'Manufacturer#' || m, 'Brand#' || m || 1 + pg_temp.draw(k, 55, 5), concat_ws(' ', pg_temp.word(k, 56, 'STANDARD,SMALL,MEDIUM,LARGE,ECONOMY,PROMO'),
    pg_temp.word(k, 57, 'ANODIZED,BURNISHED,PLATED,POLISHED,BRUSHED'), pg_temp.word(k, 58, 'TIN,NICKEL,BRASS,STEEL,COPPER')), 1 + pg_temp.draw(k, 59, 50),
    pg_temp.word(k, 60, 'SM,LG,MED,JUMBO,WRAP') || ' ' || pg_temp.word(k, 61, 'CASE,BOX,BAG,PKG,PACK'),
    (90000 + k / 10 % 20001 + 100 * (k % 1000)) / 100.0, pg_temp.word(k, 62, 'final,bold,even')
    from generate_series(1, SCALE * 20) k, lateral (select 1 + pg_temp.draw(k, 63, 4)) x (m);
insert into partsupp select k, (k + i * (SCALE / 4 + (k - 1) / SCALE)) % SCALE + 1, 1 + pg_temp.draw(k * 4 + i, 70, 9999),
    (100 + pg_temp.draw(k * 4 + i, 71, 99901)) / 100.0, pg_temp.phrase(k * 4 + i, 72) from generate_series(1, SCALE * 20) k, generate_series(0, 3) i;

create temp table lines as
    select k, o, d, i, o * 8 + i as l, 1 + pg_temp.draw(o * 8 + i, 80, SCALE * 20) as p, case k % 500 when 7 then 50 else 1 + pg_temp.draw(o * 8 + i, 81, 50) end as q,
        d + 1 + pg_temp.draw(o * 8 + i, 82, 121)::int as ship
    from generate_series(0, SCALE * 150 - 1) k, lateral (select (k / 8 * 32 + k % 8 + 1)::bigint, date '1992-01-01' + pg_temp.draw(k, 83, 2406)::int) x (o, d),
        generate_series(1, case k % 500 when 7 then 7 else 1 + pg_temp.draw(k, 84, 7)::int end) i;
create temp table sold as
    select o, p, (p + pg_temp.draw(l, 90, 4) * (SCALE / 4 + (p - 1) / SCALE)) % SCALE + 1 as s, i, q, q * (90000 + p / 10 % 20001 + 100 * (p % 1000)) / 100.0 as price,
        pg_temp.draw(l, 91, 11) / 100.0 as discount, pg_temp.draw(l, 92, 9) / 100.0 as tax, case when ship > '1995-06-17' then 'O' else 'F' end as status,
        ship, d + 30 + pg_temp.draw(l, 93, 61)::int as due, ship + 1 + pg_temp.draw(l, 94, 30)::int as received, k, d, l
    from lines;
insert into orders select o, c + (c % 3 = 0)::int, case min(status) when max(status) then min(status) else 'P' end, sum(round(price * (1 - discount) * (1 + tax), 2)), d,
    pg_temp.word(k, 100, '1-URGENT,2-HIGH,3-MEDIUM,4-NOT SPECIFIED,5-LOW'), 'Clerk#' || lpad((1 + pg_temp.draw(k, 101, SCALE / 10))::text, 9, '0'), 0, pg_temp.phrase(k, 102)
    from sold, lateral (select 1 + pg_temp.draw(k, 105, SCALE * 15 - 1)) x (c) group by o, k, d, c;
insert into lineitem select o, p, s, i, q, price, discount, tax, case when received > '1995-06-17' then 'N' else pg_temp.word(l, 110, 'R,A') end, status, ship, due, received,
    pg_temp.word(l, 111, 'DELIVER IN PERSON,COLLECT COD,NONE,TAKE BACK RETURN'), pg_temp.word(l, 112, 'REG AIR,AIR,RAIL,SHIP,TRUCK,MAIL,FOB'), pg_temp.phrase(l, 113)
    from sold;
drop table lines, sold;
