package users

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/wholefile"
)

// Size is how many IDs a pod gets.
const Size = 65536

// lastSlot is the last multiple of Size that is handed out: programs take IDs for
// signed numbers.
const lastSlot = 1<<31/Size - 1

// File is the name of the file in a pod's directory that says which range the
// pod has. It is the last of the pod to be removed (U2).
const File = "userns"

// Range is the IDs First to First+Size-1 of the node, for users and for groups.
type Range struct{ First uint32 }

// Ranges knows which pod has which range. It may be used by many goroutines.
type Ranges struct {
	pods string
	free func(slot uint32) bool // whether it is the node's to give

	mu struct {
		sync.Mutex
		slots  map[types.UID]uint32
		owners map[uint32]types.UID
	}
}

// Open returns the ranges of the pods whose directories are below pods, with
// those that earlier processes have given. etc is where the system's files
// subuid and subgid are, /etc.
func Open(pods, etc string) (*Ranges, error) {
	r := &Ranges{pods: pods}
	r.mu.slots, r.mu.owners = map[types.UID]uint32{}, map[uint32]types.UID{}
	var err error
	if r.free, err = available(etc); err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(pods, "*", File))
	if err != nil {
		return nil, fmt.Errorf("find user IDs of pods: %w", err)
	}
	for _, path := range files {
		uid := types.UID(filepath.Base(filepath.Dir(path)))
		slot, err := read(path)
		if err != nil {
			return nil, err
		}
		if other, taken := r.mu.owners[slot]; taken {
			return nil, fmt.Errorf("pods %s and %s have the same user IDs according to %s", other, uid, path)
		}
		r.mu.slots[uid], r.mu.owners[slot] = slot, uid
	}
	return r, nil
}

// Of returns the pod's range: the one it has, or a free one, which is on disk
// before this returns.
func (r *Ranges) Of(pod types.UID) (Range, error) {
	slot, isNew, err := r.take(pod)
	if err != nil {
		return Range{}, err
	}
	if isNew {
		if err := write(filepath.Join(r.pods, string(pod), File), slot); err != nil {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.dropLocked(pod)
			return Range{}, err
		}
	}
	return Range{slot * Size}, nil
}

func (r *Ranges) take(pod types.UID) (slot uint32, isNew bool, _ error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if slot, ok := r.mu.slots[pod]; ok {
		return slot, false, nil
	}
	for slot := uint32(1); slot <= lastSlot; slot++ { // U1
		if _, taken := r.mu.owners[slot]; !taken && r.free(slot) {
			r.mu.slots[pod], r.mu.owners[slot] = slot, pod
			return slot, true, nil
		}
	}
	return 0, false, errors.New("no range of user IDs is free for a pod with hostUsers: false: see /etc/subuid and /etc/subgid")
}

// Release takes the pod's range back, if it has one: nothing of the pod is left
// on the node.
func (r *Ranges) Release(pod types.UID) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.mu.slots[pod]; !ok {
		return nil
	}
	if err := os.Remove(filepath.Join(r.pods, string(pod), File)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("release user IDs of pod: %w", err)
	}
	r.dropLocked(pod)
	return nil
}

func (r *Ranges) dropLocked(pod types.UID) {
	delete(r.mu.owners, r.mu.slots[pod])
	delete(r.mu.slots, pod)
}

// stored is the content of File, which is that of other node agents' too.
type stored struct {
	UIDMappings []mapping `json:"uidMappings"`
	GIDMappings []mapping `json:"gidMappings"`
}

type mapping struct {
	HostID      uint32 `json:"hostId"`
	ContainerID uint32 `json:"containerId"`
	Length      uint32 `json:"length"`
}

// read returns the slot that a file names.
func read(path string) (uint32, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("read user IDs of pod: %w", err)
	}
	var s stored
	if err := json.Unmarshal(data, &s); err != nil {
		return 0, fmt.Errorf("read user IDs of pod from %s: %w", path, err)
	}
	if len(s.UIDMappings) != 1 || len(s.GIDMappings) != 1 || s.UIDMappings[0] != s.GIDMappings[0] ||
		s.UIDMappings[0].Length != Size || s.UIDMappings[0].ContainerID != 0 || s.UIDMappings[0].HostID%Size != 0 || s.UIDMappings[0].HostID == 0 {
		return 0, fmt.Errorf("read user IDs of pod from %s: want one range of %d IDs from a multiple of that", path, Size)
	}
	return s.UIDMappings[0].HostID / Size, nil
}

// write makes the file that names a slot, whole or not at all, also if the power
// fails.
func write(path string, slot uint32) error {
	m := []mapping{{HostID: slot * Size, Length: Size}}
	data, err := json.Marshal(stored{m, m})
	if err != nil {
		return fmt.Errorf("note user IDs of pod: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return fmt.Errorf("note user IDs of pod: %w", err)
	}
	if err := wholefile.Write(path, data, 0o600); err != nil {
		return fmt.Errorf("note user IDs of pod: %w", err)
	}
	return nil
}
