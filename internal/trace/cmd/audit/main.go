// Command audit draws requirements that the last full test run has proved, breaks what is
// expected beside a citation of each, and fails if a test does not notice. It is run by
// `make audit`; no logic lives here.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"

	"github.com/kemudi/kemudi/internal/trace/audit"
)

func main() {
	o := audit.Options{Root: ".", Out: os.Stdout}
	flag.StringVar(&o.Dir, "dir", ".trace", "directory with the records of a test run")
	flag.IntVar(&o.N, "n", 20, "how many IDs to draw")
	flag.Uint64Var(&o.Seed, "seed", rand.Uint64(), "seed of the draw")
	flag.StringVar(&o.Only, "only", "", "draw citations of packages whose path matches this `pattern`, only")
	flag.StringVar(&o.Go, "go", "go", "the go command")
	flag.Parse()
	passed, err := audit.Run(context.Background(), o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "audit:", err)
	}
	if err != nil || passed > 0 {
		os.Exit(1)
	}
}
