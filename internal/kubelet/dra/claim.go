package dra

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/wholefile"
)

// File is the name of the file in the node's root directory that has the claims.
const File = "dra_manager_state"

// claim is a claim that is being made ready, is, or has been and is not taken back yet. Its fields, and
// those of the types below, are written to disk under their names, which are upstream's.
type claim struct {
	ClaimUID    types.UID
	ClaimName   string
	Namespace   string
	PodUIDs     map[types.UID]struct{} // that use it
	DriverState map[string]*driverState

	prepared bool // since the agent began
}

// driverState is what one driver has made ready.
type driverState struct{ Devices []device }

type device struct {
	PoolName, DeviceName string
	ShareID              *types.UID
	RequestNames         []string // empty: all of the claim
	CDIDeviceIDs         []string
}

// serves reports whether the device is there for a request of its claim; empty: for any.
func (d *device) serves(request string) bool {
	request, _, _ = strings.Cut(request, "/") // which of several alternatives it has become is of no matter
	return request == "" || len(d.RequestNames) == 0 || slices.ContainsFunc(d.RequestNames, func(name string) bool {
		name, _, _ = strings.Cut(name, "/")
		return name == request
	})
}

func (c *claim) key() types.NamespacedName {
	return types.NamespacedName{Namespace: c.Namespace, Name: c.ClaimName}
}

// drivers that have a part in the claim, sorted.
func (c *claim) drivers() []string { return slices.Sorted(maps.Keys(c.DriverState)) }

// cdi lists the CDI devices that a container gets for a request of the claim.
func (c *claim) cdi(request string) []string {
	var out []string
	for _, name := range c.drivers() {
		for i := range c.DriverState[name].Devices {
			if d := &c.DriverState[name].Devices[i]; d.serves(request) {
				out = append(out, d.CDIDeviceIDs...)
			}
		}
	}
	return out
}

// stored is the form of the file, contents that of its data.
type stored struct {
	Data     string
	Checksum uint32
}

type contents struct {
	metav1.TypeMeta
	ClaimInfoStateList []*claim
}

var contentsType = metav1.TypeMeta{Kind: "DRACheckpoint", APIVersion: "checkpoint.dra.kubelet.k8s.io/v1"}

// readClaims reads the file of a directory. Where there is none, there are no claims.
func readClaims(dir string) ([]*claim, error) {
	text, err := os.ReadFile(filepath.Join(dir, File))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read claims: %w", err)
	}
	var s stored
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, fmt.Errorf("read claims: %w", err)
	}
	var c contents
	switch err := json.Unmarshal([]byte(s.Data), &c); {
	case crc32.ChecksumIEEE([]byte(s.Data)) != s.Checksum:
		return nil, errors.New("read claims: checkpoint is corrupted")
	case err != nil:
		return nil, fmt.Errorf("read claims: %w", err)
	case c.TypeMeta != contentsType:
		return nil, fmt.Errorf("read claims: unsupported %s %s", c.APIVersion, c.Kind)
	}
	return slices.DeleteFunc(c.ClaimInfoStateList, func(c *claim) bool { return c == nil }), nil
}

// writeClaims puts the file into a directory, as a whole or not at all.
func writeClaims(dir string, list []*claim) error {
	data, err := json.Marshal(contents{contentsType, list})
	if err != nil {
		return fmt.Errorf("encode claims: %w", err)
	}
	text, err := json.Marshal(stored{string(data), crc32.ChecksumIEEE(data)})
	if err != nil {
		return fmt.Errorf("encode claims: %w", err)
	}
	if err := wholefile.Private(filepath.Join(dir, File), text); err != nil {
		return fmt.Errorf("write claims: %w", err)
	}
	return nil
}
