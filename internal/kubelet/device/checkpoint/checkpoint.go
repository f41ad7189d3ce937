// Package checkpoint is the form in which a node writes down which container has which devices
// of plugins: upstream's, in a file of upstream's name, since monitors and network plugins read it.
//
// The names of the types are upstream's, too: the checksum is taken of a text in which they are.
package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"

	"k8s.io/utils/dump"

	"github.com/kemudi/kemudi/internal/wholefile"
)

// File is the name of the file.
const File = "kubelet_internal_checkpoint"

// DevicesPerNUMA are the IDs of devices by the NUMA node that they are at.
type DevicesPerNUMA map[int64][]string

// NoNUMA stands for the node of devices that are at none.
const NoNUMA int64 = -1

// PodDevicesEntry is what one container has of one resource.
type PodDevicesEntry struct {
	PodUID        string
	ContainerName string
	ResourceName  string
	DeviceIDs     DevicesPerNUMA
	AllocResp     []byte // what the plugin has answered, as on the wire
}

type checkpointData struct {
	PodDeviceEntries  []PodDevicesEntry
	RegisteredDevices map[string][]string
}

// Data is what the file holds.
type Data struct {
	Data     checkpointData
	Checksum uint64
}

// ErrCorrupt says that the file is not what somebody has written.
var ErrCorrupt = errors.New("checkpoint is corrupted")

// New makes Data of what containers have and of the devices that there are, by resource.
func New(entries []PodDevicesEntry, registered map[string][]string) *Data {
	d := &Data{Data: checkpointData{entries, registered}}
	d.Checksum = d.sum()
	return d
}

// Entries is what containers have, Registered which devices there were.
func (d *Data) Entries() []PodDevicesEntry      { return d.Data.PodDeviceEntries }
func (d *Data) Registered() map[string][]string { return d.Data.RegisteredDevices }

func (d *Data) sum() uint64 {
	h := fnv.New32a()
	fmt.Fprintf(h, "%v", dump.ForHash(d.Data)) // never fails
	return uint64(h.Sum32())
}

// Read reads the file of a directory. Where there is none, nobody has anything.
func Read(dir string) (*Data, error) {
	text, err := os.ReadFile(filepath.Join(dir, File))
	if errors.Is(err, os.ErrNotExist) {
		return &Data{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read checkpoint: %w", err)
	}
	d := &Data{}
	if err := json.Unmarshal(text, d); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if d.sum() != d.Checksum {
		return nil, ErrCorrupt
	}
	return d, nil
}

// Write puts the file into a directory, as a whole or not at all.
func (d *Data) Write(dir string) error {
	text, err := json.Marshal(d)
	if err != nil {
		return fmt.Errorf("encode checkpoint: %w", err)
	}
	if err := wholefile.Private(filepath.Join(dir, File), text); err != nil {
		return fmt.Errorf("write checkpoint: %w", err)
	}
	return nil
}
