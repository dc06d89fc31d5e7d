SELECT E'a\'b', $tag$ it's $$ $tag$, U&'d\0061t', "A b" /* c /* d */ */ -- end
, B'01', 1.5e-3, $1::int[]