//go:build !unix

package main

import (
	"os"
	"os/exec"
)

// ownGroup does nothing where there are no process groups.
func ownGroup(*exec.Cmd) {}

// signalGroup kills the command itself where there are no process groups.
func signalGroup(cmd *exec.Cmd, _ bool) error { return cmd.Process.Kill() }

// lockFile takes nothing where there is no such lock.
func lockFile(*os.File) error { return nil }
