// Package expression compiles and evaluates the expressions of definitions:
// the language of expr-lang/expr, less what is not deterministic, and bounded.
//
// # Roles
//
// [Compile] takes one expression, as in `when`; [CompileTemplate] takes JSON in
// whose strings every ${{ expression }} is replaced. Both tell which nodes are
// read, which is how a read becomes a dependency. Eval is given an [Env] and
// gives a value that JSON can hold.
//
// The parser, the type checker and the virtual machine are the library's. What
// could loop, grow or differ from one process to the next is not: every
// function, and every operator that works on more than two numbers, is one of
// this package, and is handed a meter. The tree is rewritten to that end
// between the check and the compilation, see rewrite.go.
//
// # Promises
//
//   - The same expression and Env give the same value in every process: no
//     clock, no chance, no time zones of the machine; what goes through an
//     object goes in the order of its keys; sorting is stable.
//   - An evaluation ends: it may do so much work, counted in elements and bytes
//     that are touched, and then it is an error. A template has one such
//     allowance for all of its expressions.
//   - A compiled expression is safe for concurrent use, and never changes what
//     the Env holds.
//   - No input panics or overflows a stack.
//
// # What may not be assumed
//
// That a type is known: what comes from JSON is checked when it is read. That
// integers beyond 64 bits, or "1.0" as against 1, survive an expression.
package expression
