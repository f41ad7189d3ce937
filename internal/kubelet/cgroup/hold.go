package cgroup

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Bound is what a cgroup is held to as a whole. What is 0 is left as it is.
type Bound struct {
	Shares    int64 // of the CPU, as version 1 counts them
	Memory    int64 // bytes
	Processes int64
}

// setting is a value of a file in a cgroup's directory.
type setting struct{ dir, name, value string }

// settings are what a bound comes to for a cgroup.
func (t Tree) settings(path string, b Bound) (list []setting) {
	add := func(amount int64, controller, name, value string) {
		if amount == 0 {
			return
		}
		dir := filepath.Join(t.top, controller, path)
		if t.v2 {
			dir = filepath.Join(t.top, path)
		}
		list = append(list, setting{dir, name, value})
	}
	if t.v2 {
		add(b.Shares, "", "cpu.weight", strconv.FormatInt(weight(b.Shares), 10))
		add(b.Memory, "", "memory.max", strconv.FormatInt(b.Memory, 10))
		add(b.Processes, "", "pids.max", strconv.FormatInt(b.Processes, 10))
		return list
	}
	add(b.Shares, "cpu", "cpu.shares", strconv.FormatInt(b.Shares, 10))
	add(b.Memory, "memory", "memory.limit_in_bytes", strconv.FormatInt(b.Memory, 10))
	add(b.Processes, "pids", "pids.max", strconv.FormatInt(b.Processes, 10))
	return list
}

// Hold holds a cgroup of ours to a bound. It is made if it is not there. Less memory than
// is in use is refused: under version 2 the kernel would kill for it, where evictions are to do that.
func (t Tree) Hold(path string, b Bound) error {
	list := t.settings(path, b)
	if t.v2 {
		if err := errors.Join(t.makeV2(path), delegate(filepath.Join(t.top, path)), t.spare(path, b.Memory)); err != nil {
			return err
		}
	}
	for _, s := range list {
		if err := os.MkdirAll(s.dir, 0o755); err != nil {
			return fmt.Errorf("make cgroup: %w", err)
		}
	}
	return apply(list)
}

// HoldOther holds a cgroup that belongs to somebody else, and must be there, to a bound. What it was
// held to before is noted in the file, for [GiveBack].
func (t Tree) HoldOther(path string, b Bound, note string) error {
	list, before := t.settings(path, b), map[string]string{}
	for _, s := range list {
		old, err := os.ReadFile(filepath.Join(s.dir, s.name))
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%q cgroup does not exist", path)
		}
		if err != nil {
			return fmt.Errorf("read cgroup limit: %w", err)
		}
		before[filepath.Join(s.dir, s.name)] = strings.TrimSpace(string(old))
	}
	if t.v2 {
		if err := t.spare(path, b.Memory); err != nil {
			return err
		}
	}
	known, err := noted(note)
	if err != nil {
		return err
	}
	maps.Copy(before, known) // what was there before the first time
	text, err := json.Marshal(before)
	if err != nil {
		return fmt.Errorf("note cgroup limits: %w", err)
	}
	if err := os.WriteFile(note, text, 0o600); err != nil {
		return fmt.Errorf("note cgroup limits: %w", err)
	}
	return apply(list)
}

// GiveBack sets what the note says that cgroups of others were held to before, removes the note, and
// returns the files that it has set. Cgroups that have gone meanwhile are none.
func GiveBack(note string) (files []string, err error) {
	before, err := noted(note)
	if err != nil || before == nil {
		return nil, err
	}
	for _, file := range slices.Sorted(maps.Keys(before)) {
		switch err := os.WriteFile(file, []byte(before[file]), 0); {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return files, fmt.Errorf("give back cgroup limit: %w", err)
		default:
			files = append(files, file)
		}
	}
	if err := os.Remove(note); err != nil {
		return files, fmt.Errorf("remove note of cgroup limits: %w", err)
	}
	return files, nil
}

// noted are the values by file that a note has; nil if there is no note.
func noted(note string) (values map[string]string, err error) {
	text, err := os.ReadFile(note)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read note of cgroup limits: %w", err)
	}
	if err := json.Unmarshal(text, &values); err != nil {
		return nil, fmt.Errorf("read note of cgroup limits %s: %w", note, err)
	}
	return values, nil
}

func apply(list []setting) error {
	for _, s := range list {
		if err := set(s.dir, s.name, s.value); err != nil {
			return err
		}
	}
	return nil
}

// spare refuses a limit of memory that a cgroup of version 2 exceeds by what the kernel cannot
// simply drop.
func (t Tree) spare(path string, limit int64) error {
	if limit == 0 {
		return nil
	}
	dir := filepath.Join(t.top, path)
	number := func(text string) int64 { n, _ := strconv.ParseInt(strings.TrimSpace(text), 10, 64); return n }
	current, err := os.ReadFile(filepath.Join(dir, "memory.current"))
	if err != nil {
		return fmt.Errorf("read memory of cgroup: %w", err)
	}
	used := number(string(current))
	stat, err := os.ReadFile(filepath.Join(dir, "memory.stat"))
	if err != nil {
		return fmt.Errorf("read memory of cgroup: %w", err)
	}
	for line := range strings.Lines(string(stat)) {
		if n, ok := strings.CutPrefix(line, "inactive_file "); ok {
			used -= number(n)
		}
	}
	if used > limit {
		return fmt.Errorf("set memory limit of cgroup %s to %d: %d are in use", path, limit, used)
	}
	return nil
}
