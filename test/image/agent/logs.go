package main

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/spf13/pflag"
)

// logsGenerator prints numbered lines of about 100 bytes at an even pace.
func logsGenerator(args []string) int {
	var lines int
	var duration time.Duration
	flags("logs-generator", args, func(f *pflag.FlagSet) {
		f.IntVarP(&lines, "log-lines-total", "t", 0, "total lines by the end of the run")
		f.DurationVarP(&duration, "run-duration", "d", 0, "how long the run takes")
	})
	if lines <= 0 {
		fail("Invalid total number of lines: %d", lines)
	}
	if duration <= 0 {
		fail("Invalid duration: %v", duration)
	}
	tick := time.NewTicker(max(duration/time.Duration(lines), 1))
	for n := range lines {
		fmt.Println(time.Now().UTC().Format(time.RFC3339), logLine(n))
		<-tick.C
	}
	return 0
}

func logLine(n int) string {
	methods, namespaces := []string{"GET", "POST", "PUT"}, []string{"kube-system", "default", "ns"}
	name := make([]byte, 3+rand.IntN(3))
	for i := range name {
		name[i] = "bcdfghjklmnpqrstvwxz2456789"[rand.IntN(27)]
	}
	return fmt.Sprintf("%d %s /api/v1/namespaces/%s/endpoints/%s %d",
		n, methods[rand.IntN(3)], namespaces[rand.IntN(3)], name, 200+rand.IntN(400))
}
