package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// pause waits for a signal; its exit code tells which one it was.
func pause([]string) int {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGINT, syscall.SIGTERM)
	fmt.Println("Paused")
	if sig := <-c; sig == syscall.SIGINT {
		return 1
	}
	return 2
}

// entrypointTester prints the argument vector it was started with.
func entrypointTester([]string) int {
	fmt.Println(os.Args)
	return 0
}

// noNewPrivs prints the effective user, which differs from the real one only
// if the set-uid bit of the program was allowed to work.
func noNewPrivs([]string) int {
	fmt.Printf("Effective uid: %d\n", syscall.Geteuid())
	return 0
}
