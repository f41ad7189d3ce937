package podstep

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// Desired is what the API says about a pod.
type Desired struct {
	// Pod is the newest known state of the object; read-only.
	Pod *v1.Pod
	// Gone says that the object has left the API: the pod must end, and there is
	// no status to write.
	Gone bool
	// Fail, if not nil, ends the pod as Failed: the node rejected or evicted it.
	Fail *Failure
	// Evict, if not nil, ends the pod as Failed because of what it uses: at once, and
	// not by its own fault.
	Evict *Eviction
	// Deferred, if not nil, says why the resources that the pod asks for now
	// cannot be given to it: Reason is Deferred or Infeasible.
	Deferred *Failure
}

// Eviction is why the node does without a pod, in the words of the API.
type Eviction struct{ Message string }

// ReasonEvicted is the reason of pods that the node does without.
const ReasonEvicted = "Evicted"

// Failure is why something did not work, in the words of the API.
type Failure struct {
	Reason, Message string
	// At is when it happened. Count is how often in a row (1 is the first time).
	At    time.Time
	Count int
}

// Observed is what the node sees of a pod and remembers about it.
type Observed struct {
	// FirstSeen is when the node took the pod on. EndingSince is when it began to
	// end; zero: it does not, or begins now.
	FirstSeen, EndingSince time.Time
	// HostIPs are the node's addresses, the primary one first.
	HostIPs []string
	// Runtime is the scheme of container IDs, "containerd".
	Runtime string

	Sandboxes  []Sandbox   // newest first
	Containers []Container // newest first among those with one name

	VolumesReady bool
	// CleanedUp says that the volumes and other belongings of the pod on the
	// node, except its sandboxes and logs, have been removed.
	CleanedUp bool

	// Images holds the outcome of EnsureImage by container name.
	Images map[string]Image
	// Failures holds why the last action on something did not work, by the
	// container's name, or one of the keys below.
	Failures map[string]Failure
	// Probes holds the results of the probes by container ID.
	Probes map[string]Probes
	// Killed holds why the node killed a container, by container ID.
	Killed map[string]KillReason
	// Hooked holds the IDs of containers that are still to be killed, but whose
	// preStop hook has had its time.
	Hooked map[string]bool
	// Doing holds the actions under way by their Key.
	Doing map[string]Action
	// Resized holds the resources that were given to a container after its
	// start, by container ID.
	Resized map[string]v1.ResourceRequirements
}

// Keys of Observed.Failures that are not names of containers.
const (
	SandboxFailure = "/sandbox"
	VolumeFailure  = "/volumes"
	ResizeFailure  = "/resize"
)

// Sandbox is a pod sandbox as the runtime reports it.
type Sandbox struct {
	ID        string
	Attempt   int
	Ready     bool
	CreatedAt time.Time
	IPs       []string // empty in the host's network
	// Stopped says that this program has had it stopped: its network is given back.
	Stopped bool
}

// State is the runtime's state of a container.
type State string

// The states of a container.
const (
	Created State = "created"
	Running State = "running"
	Exited  State = "exited"
	Unknown State = "unknown"
)

// Container is a container as the runtime reports it.
type Container struct {
	Name, ID, SandboxID string

	Attempt                          int // restart count
	State                            State
	CreatedAt, StartedAt, FinishedAt time.Time
	ExitCode                         int32
	Reason, Message                  string

	Image, ImageID string
	// Hash is of the part of the spec that a change of makes a new container of.
	Hash string
	// Backoff is how long after this container's exit its successor must wait.
	Backoff time.Duration

	User       *v1.ContainerUser
	Resources  *v1.ResourceRequirements // as started
	StopSignal *v1.Signal
}

// Image is the outcome of making sure that a container's image is there.
type Image struct {
	Attempt int    // of the container it was made ready for
	Ref     string // what to start; empty if it failed
	UID     *int64 // the user it runs as, by number or name
	User    string
	// Reason and Message say what went wrong; Retry is when to try again.
	Reason, Message string
	Retry           time.Time
}

// Probes are the results that the probes of a running container have reached
// (thresholds are already applied).
type Probes struct {
	Started bool // by the startup probe
	Ready   bool // by the readiness probe
	// Failed names the probe that says that the container must be killed:
	// "liveness" or "startup"; else empty.
	Failed string
	// Grace is that probe's own termination grace period, if it has one.
	Grace *int64
}

// KillReason says why a container was killed.
type KillReason string

// The reasons that decide what happens after the exit.
const (
	KilledForChange KillReason = "change" // its spec changed: start the new one at once
	KilledForProbe  KillReason = "probe"
	KilledForEnd    KillReason = "end"   // the pod ends
	KilledForRound  KillReason = "round" // all containers start anew, and nothing is asked of this one before
)

// Op is the kind of an action.
type Op string

// The kinds of actions. The comment says which fields of the Action they use.
const (
	PrepareVolumes  Op = "prepare-volumes"
	CreateSandbox   Op = "create-sandbox"   // Attempt
	StopSandbox     Op = "stop-sandbox"     // ID
	RemoveSandbox   Op = "remove-sandbox"   // ID
	EnsureImage     Op = "ensure-image"     // Container, Attempt
	StartContainer  Op = "start-container"  // Container, Attempt, Backoff, ID (sandbox)
	PreStop         Op = "pre-stop"         // Container, ID, Grace: only the hook
	KillContainer   Op = "kill-container"   // Container, ID, Grace, Why, Message
	RemoveContainer Op = "remove-container" // Container, ID
	ResizePod       Op = "resize-pod"
	CleanUp         Op = "clean-up"
	WriteStatus     Op = "write-status"
	DeletePod       Op = "delete-pod"
	BackOffEvent    Op = "back-off" // Container, ID, Message: tell once per ID
	DeadlineEvent   Op = "deadline" // ID, Message: tell once per ID
)

// Action is one thing to do.
type Action struct {
	Op        Op
	Container string
	ID        string
	Attempt   int
	Grace     time.Duration
	Backoff   time.Duration
	Why       KillReason
	Message   string
}

// Key identifies what the action is about: two actions with one key are not
// done at the same time, except for a kill that is overtaken by a faster one.
func (a Action) Key() string {
	switch a.Op {
	case PreStop, KillContainer, RemoveContainer, StopSandbox, RemoveSandbox:
		return string(a.Op) + " " + a.ID
	case EnsureImage, StartContainer:
		return string(a.Op) + " " + a.Container
	}
	return string(a.Op)
}

// Result is what Next decides.
type Result struct {
	Status  v1.PodStatus
	Actions []Action
	// Wake is when to ask again if nothing happens before; zero: never.
	Wake time.Time
	// Ending says that the pod is to end: pulls and hooks of starting containers
	// are of no use any more.
	Ending bool
	// Done says that nothing is left of the pod, on the node or in the API.
	Done bool
}
