// Command pack compresses the built programs for embedding.
//
//	pack -out DIR -stamp TEXT NAME=FILE[,FILE]...
//
// writes DIR/NAME.zst for each list of files, one after the other in one stream,
// removes what else ends in .zst there, and last of all DIR/manifest, one line a
// program: the hash of its content, its size, its name, the name of its stream. The
// first line is the stamp: what the programs were built from, so that the next build
// can see that nothing changed.
//
// Programs of one language and partly of the same packages have much in common, which
// is in a stream once: four in one take two thirds of what they take apart.
package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

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

func pack(out, stamp string, streams []string) error {
	old, err := filepath.Glob(filepath.Join(out, "*.zst"))
	if err != nil {
		return err
	}
	for _, name := range append(old, filepath.Join(out, "manifest")) {
		if err := os.Remove(name); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	manifest := "stamp " + stamp + "\n"
	for _, s := range streams {
		name, files, ok := strings.Cut(s, "=")
		if !ok {
			return fmt.Errorf("%q is not NAME=FILE", s)
		}
		lines, err := packStream(out, name, strings.Split(files, ","))
		if err != nil {
			return fmt.Errorf("compress %s: %w", name, err)
		}
		manifest += lines
	}
	return os.WriteFile(filepath.Join(out, "manifest"), []byte(manifest), 0o644)
}

// window is how far back the packed form refers: all programs fit.
const window = 64 << 20

func packStream(out, name string, files []string) (lines string, err error) {
	var all bytes.Buffer
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		sum := sha256.Sum256(data)
		lines += fmt.Sprintf("%s %d %s %s\n", hex.EncodeToString(sum[:]), len(data), filepath.Base(file), name)
		all.Write(data)
	}
	if all.Len() > window {
		return "", errors.New("the programs are larger than the window of their compression")
	}
	w, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithWindowSize(window), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return "", err
	}
	return lines, os.WriteFile(filepath.Join(out, name+".zst"), w.EncodeAll(all.Bytes(), nil), 0o644)
}
