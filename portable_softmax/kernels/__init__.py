"""The fused softmax and its gradient, for all vendors: one body, softmax.py's `walk`, with an entry for each.

It loads a tile, reduces it to two numbers of each row, exchanges these with programs that share the row, maps and stores.

    softmax.py     the entries, and the body
    directions.py  differences between softmax and gradient, which BACKWARD chooses from
    tiles.py       a tile that is read once, in pieces.py, and edges: load, reduce, map and store
    twice.py       rows and parts that are read a second time
    exchange.py    numbers told to other programs; alone.py, what a program does that gets none
    sharded.py     the same in two kernels, for rows that are sharded over devices
    addressing.py  pointers and masks; exponents.py, exact exponentials and running sums

A tensor is taken as matrices of lines; the elements of a line are next to each other in memory. AXIS 1: a line is a row, a
softmax is taken along it. AXIS 0: a line holds the same column of neighbouring rows, and the softmax is taken across lines;
so an inner dimension of a tensor needs no transposed copy. DEPTH 1: all lines are one distance apart; 2: they lie in
matrices; 3: these lie in blocks. FLAT: a tile's rows may lie in several matrices, as those of AXIS 1 always may. TURNED:
x, or dy, lies the other way than y and the result, as a transposed tensor does; a tile is then read in lines of one kind and
stored in the other.

A program walks tiles of TILE_ROWS rows and TILE_COLS columns, `tl.num_programs(0)` apart, so any number of programs is
correct. Rows that fit a tile are read once; longer ones are read twice, with running numbers in between; or PARTS programs
read a tile of them each, and exchange their numbers: a program whose neighbours have not published in time reads their parts
too, and its own once more.
What a program reads once, it holds in PIECES of a power of two columns each; a part may also be read twice, a piece at a time,
by programs that hold none of it while they wait.

Rules that keep it one kernel on three vendors:
* Lengths of lines and all strides come in units of VECTOR elements, from which compilers make 16-byte accesses; the JIT
  alone would tell them only about multiples of 16. RAGGED rows start anywhere, but in all operands alike, and come in
  elements: their columns are counted from the last multiple of VECTOR before them, `lead` elements away, whole vectors are
  a row's body, and what is left its two edges.
* Masked loads take their padding from `other=`: a `tl.where` on columns becomes a scalar loop on Ascend's vector unit.
* Numbers of several rows are added up over parts with the same bits in any order: a compiler's depends on the layout that it
  gives a tensor. Numbers of a single row become scalars at its edges only: elsewhere Ascend's compiler would take them out of
  a tensor one by one.
* Offsets of lines are 64 bits wide, offsets within a line 32.
* Of a tile in one piece, no tuple is made: Triton 3.2 has none. Two operands are two variables, for the same reason.
* A variable has one type in all branches of an `if` that the compiler does not choose from.
* No more than two conditions are joined without parentheses: Triton 3.2 refuses `a and b and c`.
* No parameter is called num_stages: Triton 3.2's interpreter swallows it.
"""
