package main

import (
	"io"
	"os"

	"golang.org/x/term"
)

// terminalSize gives the columns and rows of a terminal. It reports false for
// whatever is none, and for one that cannot draw.
func terminalSize(w io.Writer) (width, height int, ok bool) {
	f, is := w.(*os.File)
	if !is || os.Getenv("TERM") == "dumb" || !term.IsTerminal(int(f.Fd())) {
		return 0, 0, false
	}
	width, height, err := term.GetSize(int(f.Fd()))
	if err != nil || width <= 0 || height <= 0 {
		return 80, 24, true
	}
	return width, height, true
}

// painterFor draws for a writer: in colour and cut to its width where it is a
// terminal. NO_COLOR takes the colour out.
func painterFor(w io.Writer) painter {
	width, _, ok := terminalSize(w)
	return painter{color: ok && os.Getenv("NO_COLOR") == "", width: width}
}
