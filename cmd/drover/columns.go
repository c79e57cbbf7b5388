package main

import (
	"fmt"
	"strings"
	"text/tabwriter"
)

// columns prints a list under a head whose names have tabs between. Where the list
// was cut off, more is true, and it says what may be asked for to get less.
func columns[T any](head string, list []T, more bool, ask string, row func(*T) []any) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, head)
	for i := range list {
		for at, cell := range row(&list[i]) {
			if at > 0 {
				fmt.Fprint(w, "\t")
			}
			fmt.Fprint(w, cell)
		}
		fmt.Fprintln(w)
	}
	_ = w.Flush() // into memory
	if more {
		b.WriteString("there are more: raise --limit, or ask for " + ask + "\n")
	}
	return b.String()
}
