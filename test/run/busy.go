package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"sync/atomic"
)

// keepBusy has as many programs as there are processors do nothing as fast as
// they can, until stop is called or this program ends.
func keepBusy() (stop func(), err error) {
	var pipes []io.Closer
	var programs []*exec.Cmd
	stop = func() {
		for _, p := range pipes {
			_ = p.Close() // that it is closed is the message
		}
		for _, p := range programs {
			_ = p.Wait()
		}
	}
	self, err := os.Executable()
	if err != nil {
		return stop, fmt.Errorf("find this program: %w", err)
	}
	for range runtime.NumCPU() {
		cmd := exec.Command(self, "-spin")
		in, err := cmd.StdinPipe()
		if err == nil {
			pipes = append(pipes, in)
			err = cmd.Start()
		}
		if err != nil {
			stop()
			return func() {}, fmt.Errorf("start a busy program: %w", err)
		}
		programs = append(programs, cmd)
	}
	return stop, nil
}

// spin turns one processor until in ends.
func spin(in io.Reader) {
	var over atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		for !over.Load() {
		}
	})
	_, _ = io.Copy(io.Discard, in) // whatever ends it
	over.Store(true)
	wg.Wait()
}
