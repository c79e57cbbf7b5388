// Package kvtest holds every implementation of the interfaces of kv to what
// they promise, and has one in memory for tests that need no server.
package kvtest
