//go:build race

package natstest

const raceDetector = true
