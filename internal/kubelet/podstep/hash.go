package podstep

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strconv"

	v1 "k8s.io/api/core/v1"
)

// Hash is of what can change in a container's spec and calls for a new
// container then: its image. The name is part of it so that it is never empty.
// It must never change between versions of this program, or an upgrade would
// restart every container.
func Hash(c *v1.Container) string {
	data, err := json.Marshal([]string{c.Name, c.Image})
	if err != nil {
		panic(fmt.Sprintf("hash container %s: %v", c.Name, err))
	}
	h := fnv.New32a()
	_, _ = h.Write(data) // never fails
	return strconv.FormatUint(uint64(h.Sum32()), 16)
}
