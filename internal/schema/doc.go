// Package schema compiles JSON Schemas and checks JSON against them, with
// santhosh-tekuri/jsonschema.
//
// A schema stands alone: it is draft 2020-12 unless its $schema names another
// draft, formats are asserted, regular expressions are RE2, and it refers to
// nothing outside of itself. Nothing here reads a file or the network.
//
// Both sides are input that nobody vouches for, so both are bounded: the size
// of a schema, the numbers that are compared, and the work of one validation.
// What is over a bound is an error, and never taken for valid. Messages do not
// depend on the order of maps: the same value gives the same text.
package schema
