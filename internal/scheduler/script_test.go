package scheduler

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/scheduler/config"
	"github.com/kemudi/kemudi/internal/scheduler/plugins"
	"github.com/kemudi/kemudi/internal/scheduler/snapshot"
	"github.com/kemudi/kemudi/internal/texttest"
	"github.com/kemudi/kemudi/internal/trace"
)

// TestDecidesAsTheScriptsSay runs testdata/*.txt. A script is lines of
//
//	# comment
//	proves ID...                what the script shows to hold
//	namespace NAME LABEL=VALUE...
//	node NAME ...               see parseNode; again: the node as it is now
//	drop NAME                   the node is gone
//	service NAME LABEL=VALUE... a service of the default namespace
//	replicaset NAME SELECTOR    what a pod with owner=ReplicaSet/NAME belongs to
//	budget NAME ALLOWED SELECTOR
//	claim NAME [volume=NAME] [class=NAME] [mode=MODE] [size=SIZE] [for=NODE] [deleted]
//	volume NAME [on=EXPR] [class=NAME] [size=SIZE] [for=CLAIM] [csi=DRIVER] [ebs=ID] [LABEL=VALUE]
//	class NAME [waits] [by=PROVISIONER] [zones=a,b]
//	space NAME class=NAME size=SIZE [LABEL=VALUE]   what a driver that tells has left
//	driver NAME [needed]        a driver that tells; needed: and that must be on the node
//	limit NODE DRIVER=N         how many volumes of a driver a node takes
//	attached NAME node=NODE volume=VOLUME   a volume is attached to a node; detached NAME node=NODE: not any more
//	promise CLAIM [volume=NAME] [node=NAME]   what the claim of a pod on its way is to get
//	args PLUGIN JSON            the plugin's arguments from now on
//	choose JSON                 the profile's plugins from now on
//	pod NAME on=NODE ...        see parsePod
//	gone NAME                   the pod is gone
//	fits NAME ...               all nodes that will do, or why there is none
//	best NAME ...               the nodes with the highest score
//	place NAME ...              as best, and the pod goes to the first of them
//	preempt NAME ...            the message, and the node with its victims
//
//	gang LEAST COUNT [key=KEY] [placed=N] [at=VALUE] NAME ...   so many pods are placed together, LEAST of
//	                            them or none: how many are, where, and why the others are not
//
// Each of the last five is followed by a line "= RESULT".
func TestDecidesAsTheScriptsSay(t *testing.T) {
	texttest.Run(t, "testdata/*.txt", func(t *testing.T, file, text string) string { return newScript(t, file).run(text) })
}

type script struct {
	t      *testing.T
	cites  *trace.Script
	c      *cycle
	owned  map[string]labels.Selector
	chosen string            // the profile's plugins
	args   map[string]string // their arguments
}

func newScript(t *testing.T, file string) *script {
	s := &script{t: t, cites: trace.NewScript(t, file), owned: map[string]labels.Selector{}, chosen: "{}", args: map[string]string{}}
	snap := snapshot.New(func(kind, namespace, name string) (labels.Selector, bool) {
		sel, ok := s.owned[kind+"/"+name]
		return sel, ok
	})
	snap.SetNamespace("default", map[string]string{})
	s.c = newCycle(snap)
	s.c.percentage = 100
	return s
}

func newCycle(snap *snapshot.Snapshot) *cycle {
	return &cycle{snapshot: snap, plugins: plugins.New(), budgets: newBudgets(), rand: rand.New(rand.NewPCG(1, 2))}
}

// run returns the script with the results as they are.
func (s *script) run(text string) string {
	var out []string
	for i, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(line, "= ") {
			continue
		}
		out = append(out, line)
		words := split(line)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		if words[0] == "proves" {
			s.cites.Cites(i+1, strings.Join(words[1:], " "))
			continue
		}
		if result := s.do(words[0], words[1:]); result != "" {
			out = append(out, "= "+result)
			s.cites.Passed()
		}
	}
	s.cites.End()
	return strings.Join(out, "\n")
}

func (s *script) do(verb string, args []string) string {
	snap := s.c.snapshot
	switch verb {
	case "namespace":
		snap.SetNamespace(args[0], mustSet(strings.Join(args[1:], ",")))
	case "node":
		snap.SetNode(parseNode(args))
	case "drop":
		snap.RemoveNode(args[0])
	case "service":
		snap.SetService("default", args[0], mustSet(strings.Join(args[1:], ",")))
	case "replicaset":
		sel, err := metav1.LabelSelectorAsSelector(mustSelector(args[1]))
		if err != nil {
			s.t.Fatal(err)
		}
		s.owned["ReplicaSet/"+args[0]] = sel
	case "budget":
		s.c.budgets.set(&policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: args[0]},
			Spec:       policyv1.PodDisruptionBudgetSpec{Selector: mustSelector(args[2])},
			Status:     policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: atoi(args[1])},
		})
	case "claim":
		snap.SetClaim(parseClaim(args))
	case "volume":
		snap.SetVolume(parseVolume(args))
	case "class":
		snap.SetStorageClass(parseClass(args))
	case "driver":
		snap.SetDriver(&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: args[0]}, Spec: storagev1.CSIDriverSpec{
			StorageCapacity: ptr.To(true), PreventPodSchedulingIfMissing: ptr.To(slices.Contains(args, "needed")),
		}})
	case "space":
		snap.SetCapacity(parseSpace(args))
	case "limit":
		driver, count, _ := strings.Cut(args[1], "=")
		snap.SetCSINode(&storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: args[0]}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{
			Name: driver, Allocatable: &storagev1.VolumeNodeResources{Count: ptr.To(atoi(count))},
		}}}})
	case "attached":
		snap.SetAttachment(parseAttachment(args))
	case "detached":
		snap.RemoveAttachment(parseAttachment(args))
	case "promise":
		snap.Promise("default/"+args[0], parsePromise(args[1:]))
	case "pod":
		p := parsePod(args)
		snap.Add(snap.NewPod(p), p.Spec.NodeName)
	case "gone":
		snap.Remove(snap.Pod(parsePod(args).UID))
	case "args":
		s.args[args[0]] = strings.Join(args[1:], " ")
		s.configure()
	case "choose":
		s.chosen = strings.Join(args, " ")
		s.configure()
	case "gang":
		return s.gang(args)
	case "fits", "best", "place", "preempt":
		return s.decide(verb, args)
	default:
		s.t.Fatalf("unknown verb %q", verb)
	}
	return ""
}

// configure gives the cycle the plugins of a profile.
func (s *script) configure() {
	s.t.Helper()
	profile := "plugins: " + s.chosen + ", pluginConfig: ["
	for name, args := range s.args {
		profile += "{name: " + name + ", args: " + args + "}, "
	}
	profile += "]"
	c, err := config.Parse([]byte("{apiVersion: kubescheduler.config.k8s.io/v1, kind: KubeSchedulerConfiguration, profiles: [{" + profile + "}]}"))
	if err != nil {
		s.t.Fatal(err)
	}
	s.c.plugins, s.c.memos = plugins.NewSet(c.Profiles[0].Plugins), memos{}
}

func (s *script) decide(verb string, args []string) string {
	obj := parsePod(args)
	p := s.c.snapshot.NewPod(obj)
	s.c.snapshot.Nominate(p, obj.Status.NominatedNodeName)
	if verb != "preempt" {
		defer s.c.snapshot.Nominate(p, "")
	}
	d := s.c.decide(p)
	switch {
	case d.err != nil:
		return d.err.Error()
	case d.unfit != nil && verb == "preempt" && s.c.plugins.Preempts:
		return s.preempt(p, d.unfit)
	case d.unfit != nil:
		return d.unfit.message()
	case verb == "fits":
		return names(s.c.feasible)
	}
	best := s.c.feasible
	if len(best) > 1 {
		top := slices.Max(s.c.total)
		best = nil
		for i, n := range s.c.feasible {
			if s.c.total[i] == top {
				best = append(best, n)
			}
		}
	}
	result := names(best)
	if verb == "place" {
		s.c.snapshot.Nominate(p, "")
		s.c.snapshot.Add(p, strings.Fields(result)[0])
	}
	return result
}

func (s *script) preempt(p *snapshot.Pod, u *unfit) string {
	pre, _ := s.c.preempt(u)
	if pre.node == nil {
		if !pre.keep {
			s.c.snapshot.Nominate(p, "")
		}
		return u.message() + " preemption: " + pre.message
	}
	var victims []string
	for _, v := range pre.victims {
		victims = append(victims, v.Obj.Name)
	}
	s.c.snapshot.Nominate(p, pre.node.Name)
	return fmt.Sprintf("%s victims on %s: %s", u.message(), pre.node.Name, strings.Join(victims, " "))
}

// plainTrial puts pods on nodes, and nothing else.
type plainTrial struct {
	snapshot *snapshot.Snapshot
	pods     []*snapshot.Pod
}

func (t *plainTrial) take(i int, n *snapshot.Node) *plugins.Reason {
	t.snapshot.Add(t.pods[i], n.Name)
	return nil
}

func (t *plainTrial) back(i int) { t.snapshot.Remove(t.pods[i]) }

func (s *script) gang(args []string) string {
	g := &gang{least: int(atoi(args[0]))}
	count, args := int(atoi(args[1])), args[2:]
	for ; strings.Contains(args[0], "="); args = args[1:] {
		switch key, value, _ := strings.Cut(args[0], "="); key {
		case "key":
			g.key = topologyKey(value)
		case "placed":
			g.placed = int(atoi(value))
		case "at":
			g.value = &value
		}
	}
	for i := range count {
		own := slices.Clone(args)
		own[0] += strconv.Itoa(i + 1)
		g.pods = append(g.pods, s.c.snapshot.NewPod(parsePod(own)))
	}
	before := s.c.snapshot.PodCount()
	d := s.c.gang(g, &plainTrial{s.c.snapshot, g.pods})
	if s.c.snapshot.PodCount() != before {
		s.t.Errorf("%q: %d pods are on nodes, and were %d before the decision", args, s.c.snapshot.PodCount(), before)
	}
	if d.err != nil || d.message != "" {
		return cmp.Or(d.message, fmt.Sprint(d.err))
	}
	result := fmt.Sprint(d.count(), " placed")
	if d.domain != nil {
		result += " in " + d.domain.value
	}
	for i, n := range d.nodes {
		if n == nil {
			result += " | " + d.why[i].message
		}
	}
	return result
}

func names(nodes []*snapshot.Node) string {
	var list []string
	for _, n := range nodes {
		list = append(list, n.Name)
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}
