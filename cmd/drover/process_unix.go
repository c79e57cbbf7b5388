//go:build unix

package main

import (
	"os"
	"os/exec"
	"syscall"
)

// ownGroup makes a command the leader of a new process group, so that what it
// starts can be ended with it, and Ctrl-C at a terminal does not reach it.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// signalGroup asks the group of a command to end, or kills it.
func signalGroup(cmd *exec.Cmd, kill bool) error {
	sig := syscall.SIGTERM
	if kill {
		sig = syscall.SIGKILL
	}
	return syscall.Kill(-cmd.Process.Pid, sig)
}

// lockFile takes a file for this process until it is closed, or fails at once.
func lockFile(f *os.File) error {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}
