//go:build !race

package natstest

const raceDetector = false
