package podstep

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kemudi/kemudi/internal/texttest"
	"github.com/kemudi/kemudi/internal/trace"
)

// TestScripts plays the stories in testdata/*.txt. A story is a list of blocks:
// a command with its lines, "----", and what the step then wants and shows, up to
// an empty line. Before a block, "proves ID ..." names requirements.
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
func playStory(t *testing.T, text string) string {
	var out strings.Builder
	w := newWorld()
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	for i := 0; i < len(lines); {
		line := lines[i]
		if line == "" || strings.HasPrefix(line, "#") || strings.HasPrefix(line, "proves ") {
			if ids, ok := strings.CutPrefix(line, "proves "); ok {
				trace.Proves(t, strings.Fields(ids)...)
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
		}
	case "patch":
		pod := w.d.Pod.DeepCopy()
		pod.Generation++
		w.unmarshal(t, body, pod)
		w.d.Pod = pod
	case "tick":
		d, err := time.ParseDuration(rest)
		if err != nil {
			t.Fatal(err)
		}
		w.now = w.now.Add(d)
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
//	volumes ready | cleaned | gone | fail REASON TEXT | evict TEXT
//	sandbox ready|stopped|lost|removed [IP]     of the newest sandbox
//	image NAME [REASON TEXT]                    pulled, or not (retry in 10s)
//	started|created NAME, hook NAME             the newest container; hook: postStart returned
//	hooked NAME                                 its preStop hook returned
//	exited NAME CODE [REASON]
//	up|ready|unready|unhealthy|unstarted NAME   probes
//	failed NAME REASON TEXT                     an action failed
//	removed ID
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
		w.o.VolumesReady = true
		w.done(PrepareVolumes, "")
	case "cleaned":
		w.o.CleanedUp = true
		w.done(CleanUp, "")
	case "gone":
		w.d.Gone = true
		w.done(DeletePod, "")
	case "fail":
		w.d.Fail = &Failure{Reason: arg(1), Message: text(2)}
	case "evict":
		w.d.Evict = &Eviction{Message: text(1)}
	case "sandbox":
		w.observeSandbox(arg(1), arg(2))
	case "image":
		im := Image{Attempt: w.o.Doing["ensure-image "+arg(1)].Attempt, Ref: "sha256:" + arg(1)}
		if len(f) > 2 {
			im.Ref, im.Reason, im.Message, im.Retry = "", arg(2), text(3), w.now.Add(10*time.Second)
		}
		w.o.Images[arg(1)] = im
		w.done(EnsureImage, arg(1))
	case "failed":
		w.done(StartContainer, arg(1))
		w.done(CreateSandbox, "")
		w.done(PrepareVolumes, "")
		w.o.Failures[arg(1)] = Failure{Reason: arg(2), Message: text(3), At: w.now, Count: w.o.Failures[arg(1)].Count + 1}
	case "removed":
		w.done(RemoveContainer, arg(1))
		w.o.Containers = slices.DeleteFunc(w.o.Containers, func(c Container) bool { return c.ID == arg(1) })
	default:
		w.observeContainer(t, f[0], arg(1), arg(2), arg(3))
	}
}

func (w *world) done(op Op, name string) {
	delete(w.o.Doing, strings.TrimSpace(string(op)+" "+name))
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
		delete(w.o.Failures, name)
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
		p.Failed = "liveness"
	case "unstarted":
		p.Failed = "startup"
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
			if a.Op == WriteStatus {
				w.d.Pod = w.d.Pod.DeepCopy()
				w.d.Pod.Status = r.Status
				wrote = true
				continue
			}
			if a.Op == BackOffEvent || a.Op == DeadlineEvent {
				continue
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
	case PreStop:
		s += fmt.Sprintf(" grace=%s", a.Grace)
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
