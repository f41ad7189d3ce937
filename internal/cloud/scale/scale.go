package scale

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Cloud is machines that can be started and stopped. Its methods may be called side by side.
type Cloud interface {
	// Pools are all pools; of several that would take a pod, the first is asked.
	Pools(ctx context.Context) ([]Pool, error)
	// Machines are those of all pools, one that has been started but is not a node yet included.
	Machines(ctx context.Context) ([]Machine, error)
	// Start has one more machine of a pool run, and returns it. [ErrNone]: there is none left.
	Start(ctx context.Context, pool string) (Machine, error)
	// Stop ends a machine, on which no pod is; one that is gone is no error.
	Stop(ctx context.Context, m Machine) error
}

// ErrNone says that a pool has no machine that could be started.
var ErrNone = errors.New("no machine is left in the pool")

// Pool is machines that are alike, as people write it too.
type Pool struct {
	Name string `json:"name"`
	// Min is how many machines stay though they have nothing to do, Max how many there may be.
	Min int `json:"min,omitempty"`
	Max int `json:"max"`
	// Resources are what a machine has for pods: cpu and memory at least, and pods, default 110.
	Resources corev1.ResourceList `json:"resources"`
	// Labels and Taints are those that its nodes have when they begin to take pods.
	Labels map[string]string `json:"labels,omitempty"`
	Taints []corev1.Taint    `json:"taints,omitempty"`
	// IdleAfter is how long a machine without pods stays; default 10m.
	IdleAfter metav1.Duration `json:"idleAfter,omitzero"`
	// ComeWithin is how long a machine may take to be a node that is ready; default 15m.
	ComeWithin metav1.Duration `json:"comeWithin,omitzero"`
	// Slices are the devices that drivers publish of a node; nil: none.
	Slices func(node *corev1.Node) []*resourcev1.ResourceSlice `json:"-"`
}

// Machine is one machine of a pool.
type Machine struct {
	Node  string // name of its node
	Pool  string
	State State
	// Kept says that the machine is only switched off when it is stopped. Its node is who it is,
	// and is not deleted.
	Kept bool
}

// State says whether a machine runs.
type State int

// The zero value is that nobody knows: such a machine is neither started nor stopped.
const (
	Unknown State = iota
	On
	Off
)

// What pools that do not say it have.
const (
	defaultPods       = "110"
	defaultIdleAfter  = 10 * time.Minute
	defaultComeWithin = 15 * time.Minute
)
