package podstep

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/kemudi/kemudi/internal/kubelet/evict"
	"github.com/kemudi/kemudi/internal/texttest"
	"github.com/kemudi/kemudi/internal/trace"
)

// TestScripts plays the stories in testdata/*.txt. A story is a list of blocks:
// a command with its lines, "----", and what the step then wants and shows, up to
// an empty line. "proves ID ..." names requirements that the next block shows.
//
//	pod       starts with the pod in YAML
//	patch     changes the pod by YAML laid over it
//	observe   takes in what happened, one thing a line (world.observe)
//	tick 10s  lets time pass
//
// Output: the actions asked for ("do"), when to ask again ("wake"), the status.
func TestScripts(t *testing.T) {
	texttest.Run(t, "testdata/*.txt", playStory)
}

// playStory returns the story with what each of its blocks puts out.
func playStory(t *testing.T, file, text string) string {
	var out strings.Builder
	cites := trace.NewScript(t, file)
	defer cites.End()
	w := newWorld()
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	for i := 0; i < len(lines); {
		line := lines[i]
		if line == "" || strings.HasPrefix(line, "#") || strings.HasPrefix(line, "proves ") {
			if ids, ok := strings.CutPrefix(line, "proves "); ok {
				cites.Cites(i+1, ids)
			}
			out.WriteString(line + "\n")
			i++
			continue
		}
		from := i
		for i < len(lines) && lines[i] != "----" {
			i++
		}
		if i == len(lines) {
			t.Fatalf("line %d: no ---- after the command", from+1)
		}
		command := lines[from:i]
		for i < len(lines) && lines[i] != "" {
			i++
		}
		cites.Passed()
		out.WriteString(strings.Join(command, "\n") + "\n----\n" + strings.TrimRight(w.play(t, command), "\n") + "\n")
	}
	return out.String()
}

// world is a node with one pod whose runtime does what the script says.
type world struct {
	now time.Time
	d   Desired
	o   Observed
	seq int
}

func newWorld() *world { return &world{now: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)} }

func (w *world) play(t *testing.T, command []string) string {
	t.Helper()
	body := strings.Join(command[1:], "\n")
	switch word, rest, _ := strings.Cut(command[0], " "); word {
	case "pod":
		*w = *newWorld()
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "u1", Generation: 1}}
		w.unmarshal(t, body, pod)
		w.d = Desired{Pod: pod}
		w.o = Observed{
			FirstSeen: w.now, HostIPs: []string{"192.0.2.1"}, Runtime: "fake",
			Images: map[string]Image{}, Failures: map[string]Failure{}, Probes: map[string]Probes{},
			Killed: map[string]KillReason{}, Hooked: map[string]bool{}, Doing: map[string]Action{},
			Devices: Devices{Unallocated: strings.Contains(body, "limits: {example.com/"), Unprepared: len(pod.Spec.ResourceClaims) > 0},
		}
	case "patch":
		pod := w.d.Pod.DeepCopy()
		pod.Generation++
		w.unmarshal(t, body, pod)
		w.d.Pod = pod
	case "tick":
		w.now = w.now.Add(duration(t, rest))
	case "observe":
		for _, line := range command[1:] {
			w.observe(t, line)
		}
	default:
		t.Fatalf("unknown command %q", command[0])
	}
	return w.step()
}

func (w *world) unmarshal(t *testing.T, body string, pod *v1.Pod) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(body), pod); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
}

// observe takes in one line:
//
//	static                                      its manifest is a file of the node's
//	volumes ready|refreshed [TIME]              and must be renewed after a while
//	volumes stale                               what they are written from has changed
//	devices allocated|prepared|well|unwell      those that its limits, or its claims, ask for
//	devices misplaced|placed                    its containers run on processors that are not theirs any more, or do not
//	storage limited [TIME], storage VOLUME SIZE measured each so often, and found to hold so much
//	drain told|over                             that nothing new is sent to it can be told; it has been
//	cleaned | gone | fail REASON TEXT | evict TEXT | let-go TIME TEXT (which it has for its end)
//	shutdown TIME TEXT                          the same, as the machine goes down
//	mirror gone|leaving|other|written           what the API has of a static pod's mirror
//	due NAME KIND TIME, probed NAME KIND TIME   when to probe next
//	sandbox ready|stopped|lost|removed [IP]     of the newest sandbox
//	image NAME [REASON TEXT]                    pulled, or not (retry in 10s)
//	started|created NAME, hook NAME             the newest container; hook: postStart returned
//	hooked NAME                                 its preStop hook returned
//	exited NAME CODE [REASON]
//	up|ready|unready|unhealthy|unstarted NAME   probes
//	failed NAME REASON TEXT                     an action failed, of a container or a key of failable
//	removed ID
//	restart-wait TIME                           a container that exits again and again waits no longer
func (w *world) observe(t *testing.T, line string) {
	t.Helper()
	f := strings.Fields(line)
	arg := func(i int) string {
		if i < len(f) {
			return f[i]
		}
		return ""
	}
	text := func(from int) string { return strings.Join(f[min(from, len(f)):], " ") }
	switch f[0] {
	case "volumes":
		w.observeVolumes(t, arg(1), arg(2))
	case "devices":
		w.observeDevices(t, arg(1))
	case "drain":
		w.o.Drain.Told, w.o.Drain.Over = true, arg(1) == "over"
		w.done(DrainPod, "")
	case "cleaned":
		w.o.CleanedUp = true
		w.done(CleanUp, "")
	case "gone":
		w.d.Gone = true
		w.done(DeletePod, "")
	case "fail":
		w.d.Fail = &Failure{Reason: arg(1), Message: text(2)}
	case "evict":
		w.d.Evict = &Eviction{Message: text(1), Grace: new(int64)}
	case "shutdown":
		w.d.Evict = &Eviction{Reason: ReasonTerminated, Message: text(2), Grace: ptr.To(int64(duration(t, arg(1)) / time.Second))}
	case "let-go":
		w.d.Evict = &Eviction{Message: text(2), Grace: ptr.To(int64(duration(t, arg(1)) / time.Second))}
	case "sandbox":
		w.observeSandbox(arg(1), arg(2))
	case "image":
		im := Image{Name: w.imageOf(arg(1)), Attempt: w.o.Doing["ensure-image "+arg(1)].Attempt, Ref: "sha256:" + arg(1)}
		if len(f) > 2 {
			im.Ref, im.Reason, im.Message, im.Retry = "", arg(2), text(3), w.now.Add(10*time.Second)
		}
		w.o.Images[arg(1)] = im
		w.done(EnsureImage, arg(1))
	case "failed":
		a, ok := failable[arg(1)]
		if !ok {
			a = Action{Op: StartContainer, Container: arg(1)}
		}
		delete(w.o.Doing, a.Key())
		w.o.Failures[a.Key()] = Failure{Reason: arg(2), Message: text(3), At: w.now, Count: w.o.Failures[a.Key()].Count + 1}
	case "static":
		w.o.Mirror = &Mirror{}
	case "restart-wait":
		w.o.RestartWait = duration(t, arg(1))
	case "storage":
		w.observeStorage(t, arg(1), arg(2))
	case "mirror":
		w.observeMirror(t, arg(1))
	case "due", "probed":
		w.observeProbe(t, arg(1), ProbeKind(arg(2)), arg(3))
	case "removed":
		w.done(RemoveContainer, arg(1))
		w.o.Containers = slices.DeleteFunc(w.o.Containers, func(c Container) bool { return c.ID == arg(1) })
	default:
		w.observeContainer(t, f[0], arg(1), arg(2), arg(3))
	}
}

// failable are actions that "failed" names by a word.
var failable = map[string]Action{
	"/sandbox": {Op: CreateSandbox}, "/volumes": {Op: PrepareVolumes}, "/refresh": {Op: RefreshVolumes},
	"/claims": {Op: PrepareClaims}, "/clean-up": {Op: CleanUp},
	"/mirror": {Op: MirrorPod}, "/stop": {Op: StopSandbox, ID: "s1"}, "/place": {Op: PlaceContainers},
}

func (w *world) observeVolumes(t *testing.T, what, renew string) {
	t.Helper()
	switch what {
	case "ready":
		w.done(PrepareVolumes, "")
		w.o.Volumes.Ready, w.o.Storage.Since = true, w.now
	case "refreshed":
		w.done(RefreshVolumes, "")
		delete(w.o.Failures, string(RefreshVolumes))
		w.o.Volumes.RenewAt = time.Time{}
	case "stale":
		w.o.Volumes.Stale = true
	default:
		t.Fatalf("unknown observation of volumes %q", what)
	}
	if renew != "" {
		w.o.Volumes.RenewAt = w.now.Add(duration(t, renew))
	}
}

// observeDevices says how far the pod's devices are, or how they are.
func (w *world) observeDevices(t *testing.T, what string) {
	t.Helper()
	health := v1.ResourceHealthStatusHealthy
	switch what {
	case "allocated":
		w.done(AllocateDevices, "")
		w.o.Devices.Unallocated = false
		return
	case "prepared":
		w.done(PrepareClaims, "")
		w.o.Devices.Unprepared = false
		return
	case "misplaced":
		w.o.Devices.Misplaced = true
		return
	case "placed":
		w.done(PlaceContainers, "")
		w.o.Devices.Misplaced = false
		return
	case "unwell":
		health = v1.ResourceHealthStatusUnhealthy
	case "well":
	default:
		t.Fatalf("unknown observation of devices %q", what)
	}
	w.o.Devices.Health = map[string][]v1.ResourceStatus{"c": {{Name: "example.com/gpu", Resources: []v1.ResourceHealth{{ResourceID: "a", Health: health}}}}}
}

// observeStorage says how often the pod is measured, or what a volume holds.
func (w *world) observeStorage(t *testing.T, what, value string) {
	t.Helper()
	if what == "limited" {
		w.o.Storage.Limited, w.o.Storage.Every = true, duration(t, value)
		return
	}
	w.done(MeasureStorage, "")
	size := resource.MustParse(value)
	w.o.Storage.Since, w.o.Storage.Held = w.now, evict.Storage{Volumes: map[string]int64{what: size.Value()}}
}

func (w *world) observeMirror(t *testing.T, what string) {
	t.Helper()
	w.done(MirrorPod, "")
	m := w.o.Mirror
	switch what {
	case "gone":
		m.UID = ""
	case "leaving":
		m.Leaving = true
	case "other":
		m.UID, m.Of = "m0", "u0"
	case "written":
		w.seq++
		uid := types.UID(fmt.Sprintf("m%d", w.seq))
		*m = Mirror{UID: uid, Of: w.d.Pod.UID, Reported: uid, Written: w.d.Pod.Status.DeepCopy()}
	default:
		t.Fatalf("unknown observation of a mirror %q", what)
	}
}

// observeProbe says when a probe of the newest container with the name is due; one
// that was under way has ended.
func (w *world) observeProbe(t *testing.T, name string, kind ProbeKind, after string) {
	t.Helper()
	i := slices.IndexFunc(w.o.Containers, func(c Container) bool { return c.Name == name })
	id := w.o.Containers[i].ID
	delete(w.o.Doing, Action{Op: RunProbe, ID: id, Probe: kind}.Key())
	p := w.o.Probes[id]
	p.Due = maps.Clone(p.Due)
	if p.Due == nil {
		p.Due = map[ProbeKind]time.Time{}
	}
	p.Due[kind] = w.now.Add(duration(t, after))
	w.o.Probes[id] = p
}

func duration(t *testing.T, s string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func (w *world) done(op Op, name string) {
	delete(w.o.Doing, strings.TrimSpace(string(op)+" "+name))
}

// imageOf is what the spec has as the image of a container of any kind.
func (w *world) imageOf(name string) string {
	spec := &w.d.Pod.Spec
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		if c.Name == name {
			return c.Image
		}
	}
	for _, c := range spec.EphemeralContainers {
		if c.Name == name {
			return c.Image
		}
	}
	return ""
}

func (w *world) observeSandbox(what, ip string) {
	switch what {
	case "ready":
		w.seq++
		sb := Sandbox{ID: fmt.Sprintf("s%d", w.seq), Attempt: w.o.Doing["create-sandbox"].Attempt, Ready: true, CreatedAt: w.now}
		if ip != "" {
			sb.IPs = []string{ip}
		}
		w.o.Sandboxes = slices.Insert(w.o.Sandboxes, 0, sb)
		w.done(CreateSandbox, "")
	case "lost":
		w.o.Sandboxes[0].Ready = false
	case "stopped":
		for i := range w.o.Sandboxes {
			sb := &w.o.Sandboxes[i]
			if _, ok := w.o.Doing["stop-sandbox "+sb.ID]; ok {
				sb.Ready, sb.Stopped, sb.IPs = false, true, nil
				w.done(StopSandbox, sb.ID)
			}
		}
	case "removed":
		w.o.Sandboxes = slices.DeleteFunc(w.o.Sandboxes, func(sb Sandbox) bool {
			_, ok := w.o.Doing["remove-sandbox "+sb.ID]
			w.done(RemoveSandbox, sb.ID)
			return ok
		})
	}
}

func (w *world) observeContainer(t *testing.T, what, name, code, reason string) {
	t.Helper()
	if what == "created" || what == "started" {
		a := w.o.Doing["start-container "+name]
		s := step{pod: w.d.Pod}
		spec, _ := s.spec(name)
		w.seq++
		w.o.Containers = slices.Insert(w.o.Containers, 0, Container{
			Name: name, ID: fmt.Sprintf("c%d", w.seq), SandboxID: a.ID, Attempt: a.Attempt, Backoff: a.Backoff,
			State: Running, CreatedAt: w.now, StartedAt: w.now, Image: spec.Image, ImageID: "sha256:" + name, Hash: Hash(spec),
		})
		delete(w.o.Failures, a.Key())
		if what == "started" {
			w.done(StartContainer, name)
		}
		return
	}
	i := slices.IndexFunc(w.o.Containers, func(c Container) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("no container %q", name)
	}
	c := &w.o.Containers[i]
	p := w.o.Probes[c.ID]
	switch what {
	case "hook":
		w.done(StartContainer, name)
	case "hooked":
		w.o.Hooked[c.ID] = true
		w.done(PreStop, c.ID)
	case "exited":
		n, err := strconv.Atoi(code)
		if err != nil {
			t.Fatal(err)
		}
		if reason == "" {
			reason = map[bool]string{true: "Completed", false: "Error"}[n == 0]
		}
		if a, ok := w.o.Doing["kill-container "+c.ID]; ok {
			w.o.Killed[c.ID] = a.Why
		}
		c.State, c.ExitCode, c.FinishedAt, c.Reason = Exited, int32(n), w.now, reason
		w.done(KillContainer, c.ID)
		w.done(StartContainer, name)
	case "up":
		p.Started = true
	case "ready":
		p.Started, p.Ready = true, true
	case "unready":
		p.Ready = false
	case "unhealthy":
		p.Failed = LivenessProbe
	case "unstarted":
		p.Failed = StartupProbe
	default:
		t.Fatalf("unknown observation %q", what)
	}
	w.o.Probes[c.ID] = p
}

// step asks for the next actions, takes them as begun, and writes the status to
// the API at once.
func (w *world) step() string {
	var out strings.Builder
	var r Result
	for range 3 {
		r = Next(w.d, w.o, w.now)
		if r.Ending && w.o.EndingSince.IsZero() {
			w.o.EndingSince = w.now
		}
		wrote := false
		for _, a := range r.Actions {
			switch a.Op {
			case WriteStatus, KeepStatus:
				w.d.Pod = w.d.Pod.DeepCopy()
				w.d.Pod.Status = r.Status
				wrote = true
				continue
			case BackOffEvent, DeadlineEvent, EvictedEvent, OverdueEvent:
				continue
			case RefreshVolumes:
				w.o.Volumes.Stale = false
			}
			w.o.Doing[a.Key()] = a
			fmt.Fprintf(&out, "do %s\n", a.line())
		}
		if !wrote {
			break
		}
	}
	if !r.Wake.IsZero() {
		fmt.Fprintf(&out, "wake in %s\n", r.Wake.Sub(w.now))
	}
	if r.Done {
		out.WriteString("done\n")
	}
	describe(&out, &r.Status)
	return out.String()
}

func (a Action) line() string {
	s := a.Key()
	switch a.Op {
	case CreateSandbox:
		s += fmt.Sprintf(" attempt=%d", a.Attempt)
	case StartContainer:
		s += fmt.Sprintf(" in %s attempt=%d backoff=%s", a.ID, a.Attempt, a.Backoff)
	case DrainPod:
		s += fmt.Sprintf(" grace=%s", a.Grace)
	case PreStop:
		s += fmt.Sprintf(" grace=%s", a.Grace)
		if a.Message != "" {
			s += fmt.Sprintf(" %q", a.Message)
		}
	case KillContainer:
		s += fmt.Sprintf(" grace=%s %q", a.Grace, a.Message)
	}
	return s
}

func describe(out *strings.Builder, st *v1.PodStatus) {
	fmt.Fprintf(out, "%s", st.Phase)
	if st.PodIP != "" {
		fmt.Fprintf(out, " %s", st.PodIP)
	}
	if st.Reason != "" {
		fmt.Fprintf(out, " %s %q", st.Reason, st.Message)
	}
	var not []string
	for _, c := range st.Conditions {
		if c.Status != v1.ConditionTrue {
			s := string(c.Type)
			if c.Reason != "" {
				s += "=" + c.Reason
			}
			not = append(not, s)
		}
	}
	if len(not) > 0 {
		fmt.Fprintf(out, " not[%s]", strings.Join(not, " "))
	}
	out.WriteString("\n")
	for _, list := range [][]v1.ContainerStatus{st.InitContainerStatuses, st.ContainerStatuses, st.EphemeralContainerStatuses} {
		for _, cs := range list {
			fmt.Fprintf(out, "  %s: %s", cs.Name, describeState(cs.State))
			if cs.Ready {
				out.WriteString(" ready")
			} else if cs.Started != nil && *cs.Started {
				out.WriteString(" started")
			}
			if cs.RestartCount > 0 {
				fmt.Fprintf(out, " restarts=%d", cs.RestartCount)
			}
			if cs.LastTerminationState.Terminated != nil {
				fmt.Fprintf(out, " last[%s]", describeState(cs.LastTerminationState))
			}
			out.WriteString("\n")
		}
	}
}

func describeState(s v1.ContainerState) string {
	switch {
	case s.Running != nil:
		return "running"
	case s.Terminated != nil:
		return fmt.Sprintf("terminated %s %d", s.Terminated.Reason, s.Terminated.ExitCode)
	case s.Waiting != nil && s.Waiting.Message != "":
		return fmt.Sprintf("waiting %s %q", s.Waiting.Reason, s.Waiting.Message)
	case s.Waiting != nil:
		return "waiting " + s.Waiting.Reason
	}
	return "none"
}
