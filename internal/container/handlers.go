package container

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// Handler is a container runtime that is installed on this machine.
type Handler struct {
	// Type is the shim to start, as containerd names it. Default
	// io.containerd.runc.v2, which is kemudi's own shim with another runc.
	Type string

	// Path of the shim program, for a Type that is not found in $PATH.
	Path string

	// Options are the shim's own, such as BinaryName: /usr/bin/crun.
	Options map[string]any
}

// Handlers are container runtimes by name. They are the value of a flag, in which a
// runtime is a program that takes runc's arguments (crun=/usr/bin/crun), a shim
// of containerd (kata=/opt/kata/containerd-shim-kata-v2), or the name of a shim
// that is found in $PATH (kata=io.containerd.kata.v2).
type Handlers map[string]Handler

// shimPrefix begins the names of the programs that are shims.
const shimPrefix = "containerd-shim-"

// Type is for the flag's help.
func (h *Handlers) Type() string { return "name=program,..." }

// String is the list as the flag takes it.
func (h *Handlers) String() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(*h)) {
		one := (*h)[name]
		what := one.Path
		if what == "" {
			what = one.Type
		}
		if program, ok := one.Options["BinaryName"].(string); ok {
			what = program
		}
		parts = append(parts, name+"="+what)
	}
	return strings.Join(parts, ",")
}

// Set reads a list, which takes the place of what was there.
func (h *Handlers) Set(s string) error {
	*h = Handlers{}
	for part := range strings.SplitSeq(s, ",") {
		name, what, ok := strings.Cut(strings.TrimSpace(part), "=")
		if !ok || name == "" || what == "" {
			return fmt.Errorf("%q is not of the form name=program", part)
		}
		if name == handlerRunc {
			return errors.New("the handler runc is the built-in one")
		}
		one, err := handlerOf(what)
		if err != nil {
			return err
		}
		(*h)[name] = one
	}
	return nil
}

// handlerOf is the handler that a program or the name of a shim is.
func handlerOf(what string) (Handler, error) {
	if !filepath.IsAbs(what) {
		if strings.Contains(what, "/") || strings.Count(what, ".") < 2 {
			return Handler{}, fmt.Errorf("%q is neither the absolute path of a program nor the name of a shim, as io.containerd.kata.v2", what)
		}
		return Handler{Type: what}, nil
	}
	shim, ok := strings.CutPrefix(filepath.Base(what), shimPrefix)
	if !ok {
		return Handler{Options: map[string]any{"BinaryName": what}}, nil
	}
	dash := strings.LastIndex(shim, "-")
	if dash <= 0 {
		return Handler{}, fmt.Errorf("%s: the name of a shim is as %skata-v2", what, shimPrefix)
	}
	return Handler{Type: "io.containerd." + shim[:dash] + "." + shim[dash+1:], Path: what}, nil
}
