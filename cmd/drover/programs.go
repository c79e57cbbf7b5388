package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/droverhq/drover"
)

// functionsFile is the name of the file beside a workflow that says which
// commands its functions are.
const functionsFile = "functions.yaml"

// programs are the functions that are commands, by name.
type programs map[drover.FunctionName]*program

// sorted gives them in the order of their names.
func (p programs) sorted() []*program {
	var all []*program
	for _, name := range slices.Sorted(maps.Keys(p)) {
		all = append(all, p[name])
	}
	return all
}

// add reads name=command, as --function takes it. The command is one line for
// the shell.
func (p programs) add(arg string) error {
	name, line, ok := strings.Cut(arg, "=")
	if !ok || strings.TrimSpace(line) == "" {
		return usageError("--function %q is not name=command: write it like 'text.count=wc -w'", arg)
	}
	return p.put(strings.TrimSpace(name), shell(line), "")
}

func (p programs) put(name string, command []string, dir string) error {
	fn, err := functionName(name)
	if err != nil {
		return err
	}
	p[fn] = &program{name: fn, command: command, dir: dir}
	return nil
}

// functionName checks the name of a function that a user may serve.
func functionName(name string) (drover.FunctionName, error) {
	fn, err := drover.ParseFunctionName(name)
	if err != nil {
		return "", usageError("%w", err)
	}
	if strings.HasPrefix(name, "_") {
		return "", usageError("function name %q begins with _: such names belong to Drover itself, choose another", name)
	}
	return fn, nil
}

// shell makes a command of a line.
func shell(line string) []string { return []string{"sh", "-c", line} }

// load reads a file of functions: a map from name to a line for the shell, or
// to a list of a program and its arguments. The commands run in the folder of
// the file.
func (p programs) load(file string) error {
	raw, err := os.ReadFile(file)
	if err != nil {
		return usageError("the functions cannot be read: %w", err)
	}
	var doc map[string]any
	if err := yaml.Unmarshal(raw, &doc); err != nil {
		return usageError("%s is not a map from function name to command: %w", file, err)
	}
	for _, name := range slices.Sorted(maps.Keys(doc)) {
		command, err := commandOf(doc[name])
		if err != nil {
			return usageError("%s: function %s: %w", file, name, err)
		}
		if err := p.put(name, command, filepath.Dir(file)); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return nil
}

// commandOf reads a command as it stands in a file of functions.
func commandOf(v any) ([]string, error) {
	switch v := v.(type) {
	case string:
		if strings.TrimSpace(v) != "" {
			return shell(v), nil
		}
	case []any:
		var words []string
		for _, w := range v {
			words = append(words, fmt.Sprint(w))
		}
		if len(words) > 0 && words[0] != "" {
			return words, nil
		}
	}
	return nil, errors.New("the command must be a line for the shell, or a list of a program and its arguments")
}

// programsFor collects the functions for a workflow file: those of the given
// file, or else of the one beside the workflow where there is one, and those
// of the command line, which win. It names the file that it read, or "".
func programsFor(workflow, file string, args []string) (programs, string, error) {
	all := programs{}
	if file == "" {
		beside := filepath.Join(filepath.Dir(workflow), functionsFile)
		if _, err := os.Stat(beside); err == nil {
			file = beside
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, "", usageError("the functions cannot be read: %w", err)
		}
	}
	if file != "" {
		if err := all.load(file); err != nil {
			return nil, "", err
		}
	}
	for _, arg := range args {
		if err := all.add(arg); err != nil {
			return nil, "", err
		}
	}
	return all, file, nil
}
