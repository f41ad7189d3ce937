// Command pack compresses the built programs for embedding.
//
//	pack -out DIR -stamp TEXT FILE...
//
// writes DIR/NAME.zst for each file, removes what else ends in .zst there, and
// last of all DIR/manifest, one line a program: the hash of its content, its
// size, its name. The first line is the stamp: what the programs were built
// from, so that the next build can see that nothing changed.
package main

import (
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/klauspost/compress/zstd"
)

func main() {
	out := flag.String("out", "", "directory to write to")
	stamp := flag.String("stamp", "", "what the programs were built from, one word")
	flag.Parse()
	if err := pack(*out, *stamp, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "pack:", err)
		os.Exit(1)
	}
}

func pack(out, stamp string, files []string) error {
	old, err := filepath.Glob(filepath.Join(out, "*.zst"))
	if err != nil {
		return err
	}
	for _, name := range append(old, filepath.Join(out, "manifest")) {
		if err := os.Remove(name); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	var wg sync.WaitGroup
	lines, errs := make([]string, len(files)), make([]error, len(files))
	for i, file := range files {
		wg.Go(func() { lines[i], errs[i] = packFile(out, file) })
	}
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			return fmt.Errorf("compress %s: %w", files[i], err)
		}
	}
	manifest := "stamp " + stamp + "\n" + strings.Join(lines, "")
	return os.WriteFile(filepath.Join(out, "manifest"), []byte(manifest), 0o644)
}

func packFile(out, file string) (line string, err error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	w, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithWindowSize(8<<20), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return "", err
	}
	name, sum := filepath.Base(file), sha256.Sum256(data)
	if err := os.WriteFile(filepath.Join(out, name+".zst"), w.EncodeAll(data, nil), 0o644); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s %d %s\n", hex.EncodeToString(sum[:]), len(data), name), nil
}
