package dns

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/wholefile"
)

// source is a Corefile with the other keys of its config map.
type source map[string]string

// sourceOf reads the config map. Values of binaryData are keys as well.
func sourceOf(m *corev1.ConfigMap) source {
	s := maps.Clone(source(m.Data))
	if s == nil {
		s = source{}
	}
	for key, value := range m.BinaryData {
		s[key] = string(value)
	}
	return s
}

// sum tells sources apart.
func (s source) sum() string {
	h := sha256.New()
	for _, key := range slices.Sorted(maps.Keys(s)) {
		fmt.Fprintf(h, "%d %s%d %s", len(key), key, len(s[key]), s[key])
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// keep is the directory with the Corefile that was read last, beside the other keys of its
// config map:
//
//	DIR/good          the name of the folder that is in use
//	DIR/SUM/Corefile  and the other keys, where plugins read them
//
// The Corefile that servers have without a config map leaves nothing there.
type keep string

// goodFile names the folder in use. A key of a config map is none of the folder it is in.
const goodFile = "good"

func (k keep) folder(s source) string { return filepath.Join(string(k), s.sum()) }

// write puts a source where plugins can read it.
func (k keep) write(s source) error {
	if err := os.MkdirAll(k.folder(s), 0o700); err != nil {
		return err
	}
	for key, value := range s {
		if err := os.WriteFile(filepath.Join(k.folder(s), key), []byte(value), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// settle notes that a source is good, and removes all others. Of none, it removes them all.
func (k keep) settle(s source) error {
	good := filepath.Join(string(k), goodFile)
	if s == nil {
		if err := os.Remove(good); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return k.sweep("")
	}
	if err := wholefile.Write(good, []byte(s.sum()), 0o600); err != nil {
		return err
	}
	return k.sweep(s.sum())
}

// sweep removes all folders but one.
func (k keep) sweep(but string) error {
	entries, err := os.ReadDir(string(k))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var errs []error
	for _, e := range entries {
		if e.IsDir() && e.Name() != but {
			errs = append(errs, os.RemoveAll(filepath.Join(string(k), e.Name())))
		}
	}
	return errors.Join(errs...)
}

// good returns the source that was good last; nil: none was, or it is not whole.
func (k keep) good() source {
	sum, err := os.ReadFile(filepath.Join(string(k), goodFile))
	if err != nil {
		return nil
	}
	dir := filepath.Join(string(k), filepath.Base(string(sum)))
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	s := source{}
	for _, e := range entries {
		value, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil
		}
		s[e.Name()] = string(value)
	}
	if s.sum() != string(sum) { // it was being written when the machine stopped
		return nil
	}
	return s
}
