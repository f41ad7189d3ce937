// Command testimages builds the test images and writes an archive of each.
//
//	go run ./test/image/cmd/testimages DIR
//	kemudi image import DIR/*.tar
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/kemudi/kemudi/test/image"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: testimages DIR")
		os.Exit(2)
	}
	paths, err := run(context.Background(), os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "testimages:", err)
		os.Exit(1)
	}
	for _, p := range paths {
		fmt.Println(p)
	}
}

func run(ctx context.Context, dir string) ([]string, error) {
	tmp, err := os.MkdirTemp("", "testimages")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp)
	gocmd := os.Getenv("GO")
	if gocmd == "" {
		gocmd = "go"
	}
	agent := filepath.Join(tmp, "agent")
	if err := image.BuildAgent(ctx, gocmd, agent); err != nil {
		return nil, err
	}
	images, err := image.All(agent)
	if err != nil {
		return nil, err
	}
	return image.Write(dir, images)
}
