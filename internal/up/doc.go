// Package up is the cluster as a person runs it on one machine: started in the
// background, looked at, stopped, removed without a trace.
//
// It never reaches into a running server: it starts the program, reads the steps
// that it reports, and talks to its API as any other client.
package up
