package podstep

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/kubelet/backoff"
	"github.com/kemudi/kemudi/internal/kubelet/evict"
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
	// Evict, if not nil, ends the pod as Failed, as the node is short of
	// something. A pod that holds more than it may ends so by itself (Storage).
	Evict *Eviction
	// Deferred, if not nil, says why the resources that the pod asks for now
	// cannot be given to it: Reason is Deferred or Infeasible.
	Deferred *Failure
}

// Eviction is why the node does without a pod, in the words of the API (no reason:
// [ReasonEvicted]; what its condition says, if it is not the message), and how many
// seconds that has to end (nil: as many as it wants).
type Eviction struct {
	Reason, Message string
	Condition       string
	Grace           *int64
	// Annotations are those of the event that tells of it.
	Annotations map[string]string
}

// The reasons of pods that the node does without.
const (
	ReasonEvicted    = "Evicted"
	ReasonPreempting = "Preempting" // one that the cluster cannot do without takes its place
	ReasonTerminated = "Terminated" // the machine goes down
)

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
	// RestartWait is how long a container that exits again and again waits at the most; 0: as others do.
	RestartWait time.Duration

	Sandboxes  []Sandbox   // newest first
	Containers []Container // newest first among those with one name

	// Mirror is of the pod's image in the API if its manifest is a file of the node's
	// (a static pod); nil: the API itself has the pod.
	Mirror *Mirror

	Volumes Volumes
	Devices Devices
	Storage Storage
	Drain   Drain
	// CleanedUp says that the volumes and other belongings of the pod on the
	// node, except its sandboxes and logs, have been removed.
	CleanedUp bool

	// Images holds the outcome of EnsureImage by container name.
	Images map[string]Image
	// Failures holds why actions did not work when they were last tried, by their Key.
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
	// start, by container ID. PodResized are those that this program has given to the
	// pod as a whole; nil: none.
	Resized    map[string]v1.ResourceRequirements
	PodResized *v1.ResourceRequirements
	// Granted is the pod as it was when it last could have what it asked for; nil: it can now, or what it had then
	// is only in its status.
	Granted *v1.Pod
}

// Mirror is what is known of the mirror of a static pod. The zero value: there is
// none, or it is not known.
type Mirror struct {
	UID     types.UID
	Of      types.UID // the static pod that it says it shows
	Leaving bool      // it is being deleted
	// Reported is the UID of the mirror that was last brought up to date, Written the
	// status that it was given.
	Reported types.UID
	Written  *v1.PodStatus
}

// Devices is how far what the pod has for itself is: devices, and with them processors and memory. The zero value: it has none, or all that it needs.
type Devices struct {
	// Unallocated says that it is not decided yet which it gets, if any: until then it is not taken on.
	Unallocated bool
	// Unprepared says that drivers have not made those of its claims ready.
	Unprepared bool
	// Misplaced says that running containers may run on processors that are not theirs any more.
	Misplaced bool
	// Health is how they are, by container.
	Health map[string][]v1.ResourceStatus
}

// Drain is whether anything new is still sent to a pod that is being deleted.
type Drain struct {
	// Told says that somebody can tell; else nobody is asked.
	Told bool
	// Over says that nothing is, or that it has been waited for in vain.
	Over bool
}

// Volumes is how far the pod's volumes are.
type Volumes struct {
	Ready bool
	// Stale says that what they are written from has changed since.
	Stale bool
	// RenewAt is when a token in them must be renewed; zero: never.
	RenewAt time.Time
}

// Storage is what the pod holds on the node's disk.
type Storage struct {
	// Limited says that it may hold only so much; else nothing is measured.
	Limited bool
	// Every is how often it is measured, Since when it last was; before that, when
	// its volumes became ready.
	Every time.Duration
	Since time.Time
	Held  evict.Storage
}

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
	Name    string // as the container's spec had it: people may put another there meanwhile
	Attempt int    // of the container it was made ready for
	Ref     string // what to start; empty if it failed
	UID     *int64 // the user it runs as, by number or name
	User    string
	// Reason and Message say what went wrong; Retry is when to try again.
	Reason, Message string
	Retry           time.Time
}

// ProbeKind is what a probe is for, as in messages.
type ProbeKind string

// The kinds of probes.
const (
	StartupProbe   ProbeKind = "startup"
	LivenessProbe  ProbeKind = "liveness"
	ReadinessProbe ProbeKind = "readiness"
)

// Probes are the results that the probes of a running container have reached
// (thresholds are already applied), and when they are due.
type Probes struct {
	Started bool // by the startup probe
	Ready   bool // by the readiness probe
	// Failed is the probe that says that the container must be killed, liveness or
	// startup; else empty.
	Failed ProbeKind
	// Grace is that probe's own termination grace period, if it has one.
	Grace *int64
	// Due is when to probe next, for each of the container's probes.
	Due map[ProbeKind]time.Time
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
	AllocateDevices Op = "allocate-devices" // and all that is to be its own: the pod is not taken on before
	PrepareClaims   Op = "prepare-claims"   // have the devices of its claims made ready
	PrepareVolumes  Op = "prepare-volumes"
	RefreshVolumes  Op = "refresh-volumes" // write anew what has changed
	MeasureStorage  Op = "measure-storage"
	CreateSandbox   Op = "create-sandbox"   // Attempt
	StopSandbox     Op = "stop-sandbox"     // ID
	RemoveSandbox   Op = "remove-sandbox"   // ID
	EnsureImage     Op = "ensure-image"     // Container, Attempt
	StartContainer  Op = "start-container"  // Container, Attempt, Backoff, ID (sandbox)
	DrainPod        Op = "drain-pod"        // Grace: until nothing new is sent to it, or for so long
	PreStop         Op = "pre-stop"         // Container, ID, Grace: only the hook; Message, if it begins the end
	KillContainer   Op = "kill-container"   // Container, ID, Grace, Why, Message unless it has been told
	RemoveContainer Op = "remove-container" // Container, ID
	RunProbe        Op = "probe"            // Container, ID, Probe
	ResizePod       Op = "resize-pod"
	PlaceContainers Op = "place-containers" // have them run where they are to
	CleanUp         Op = "clean-up"
	WriteStatus     Op = "write-status"
	DeletePod       Op = "delete-pod"
	KeepStatus      Op = "keep-status"   // of a static pod: the next step is to find it
	MirrorPod       Op = "mirror-pod"    // have the API show a static pod as it is
	RemoveMirror    Op = "remove-mirror" // of a static pod that has ended
	BackOffEvent    Op = "back-off"      // Container, ID, Message
	DeadlineEvent   Op = "deadline"      // ID, Message
	EvictedEvent    Op = "evicted"       // ID, Message
	OverdueEvent    Op = "overdue"       // ID, Message
)

// Tells reports whether an action of the kind is nothing but an event, told once per ID.
func (op Op) Tells() bool {
	switch op {
	case BackOffEvent, DeadlineEvent, EvictedEvent, OverdueEvent:
		return true
	}
	return false
}

// RetryAfter is how long an action of the kind is held back that has failed so many
// times in a row.
func (op Op) RetryAfter(failures int) time.Duration {
	switch op {
	case PrepareClaims, PrepareVolumes, CreateSandbox, StartContainer, ResizePod, PlaceContainers:
		return backoff.Start.After(failures)
	case RefreshVolumes:
		return backoff.Refresh.After(failures)
	}
	return backoff.Call.After(failures)
}

// Action is one thing to do.
type Action struct {
	Op        Op
	Container string
	ID        string
	Attempt   int
	Grace     time.Duration
	Backoff   time.Duration
	Probe     ProbeKind
	Why       KillReason
	Message   string
}

// Key identifies what the action is about: two actions with one key are not
// done at the same time, except for a kill that is overtaken by a faster one.
func (a Action) Key() string {
	switch a.Op {
	case PreStop, KillContainer, RemoveContainer, StopSandbox, RemoveSandbox:
		return string(a.Op) + " " + a.ID
	case RunProbe:
		return string(a.Op) + " " + string(a.Probe) + " " + a.ID
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
