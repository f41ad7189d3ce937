package users

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// agentName is who the node's IDs for pods are given to, if the system's files
// give any: the name is upstream's, so that a prepared machine works here too.
const agentName = "kubelet"

// subIDs is one line of subuid or subgid.
type subIDs struct {
	owner       string
	first, last uint64
}

// available returns what tells whether a slot may be given to a pod (U3): the
// system's files say so for the agent, or give it to nobody.
func available(etc string) (func(slot uint32) bool, error) {
	users, err := readSubIDs(filepath.Join(etc, "subuid"))
	if err != nil {
		return nil, err
	}
	groups, err := readSubIDs(filepath.Join(etc, "subgid"))
	if err != nil {
		return nil, err
	}
	return func(slot uint32) bool {
		first := uint64(slot) * Size
		return mayUse(users, first, first+Size-1) && mayUse(groups, first, first+Size-1)
	}, nil
}

// mayUse reports whether all of first to last is the agent's to give.
func mayUse(list []subIDs, first, last uint64) bool {
	restricted := false
	for _, s := range list {
		switch {
		case s.owner != agentName:
			if s.first <= last && first <= s.last {
				return false
			}
		case s.first <= first && last <= s.last:
			return true
		default:
			restricted = true
		}
	}
	return !restricted
}

// readSubIDs reads lines of the form owner:first:count. Others are left out, as
// the system's own programs do.
func readSubIDs(path string) ([]subIDs, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read who may use which IDs: %w", err)
	}
	var out []subIDs
	for line := range strings.Lines(string(data)) {
		parts := strings.Split(strings.TrimSpace(line), ":")
		if len(parts) != 3 {
			continue
		}
		first, err1 := strconv.ParseUint(parts[1], 10, 32)
		count, err2 := strconv.ParseUint(parts[2], 10, 32)
		if err1 == nil && err2 == nil && count > 0 {
			out = append(out, subIDs{parts[0], first, first + count - 1})
		}
	}
	return out, nil
}
