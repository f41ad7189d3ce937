package scheduler

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/core/claims"
	"github.com/kemudi/kemudi/internal/scheduler/config"
	"github.com/kemudi/kemudi/internal/scheduler/snapshot"
)

// The compact notation of nodes and pods in the scripts and tests of this
// package: a name and attributes, see parseNode and parsePod. An attribute with
// blanks is put into single quotes. "zone" and "host" stand for the well-known
// topology keys.

type attribute struct{ key, value string }

func attributes(words []string) (list []attribute) {
	for _, w := range words {
		k, v, _ := strings.Cut(w, "=")
		list = append(list, attribute{k, v})
	}
	return list
}

// split cuts a line into words; 'a b' is one word, also within a word.
func split(line string) (words []string) {
	var b strings.Builder
	quoted, any := false, false
	for _, r := range line + " " {
		switch {
		case r == '\'':
			quoted = !quoted
			any = true
		case r == ' ' && !quoted:
			if any {
				words = append(words, b.String())
			}
			b.Reset()
			any = false
		default:
			b.WriteRune(r)
			any = true
		}
	}
	return words
}

func topologyKey(short string) string {
	switch short {
	case "zone":
		return corev1.LabelTopologyZone
	case "host":
		return corev1.LabelHostname
	}
	return short
}

// parseNode reads: NAME [cpu=N] [mem=N] [eph=N] [pods=N] [res:NAME=N]
// [taint=KEY=VALUE:EFFECT] [cordoned] [nohost] [image=NAME@SIZE] [declares=FEATURE,...] [LABEL=VALUE].
func parseNode(words []string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: words[0], UID: types.UID(words[0]), Labels: map[string]string{corev1.LabelHostname: words[0]}}}
	list := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("32Gi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("100Gi"), corev1.ResourcePods: resource.MustParse("110"),
	}
	for _, a := range attributes(words[1:]) {
		switch {
		case a.key == "cpu", a.key == "mem", a.key == "eph", a.key == "pods", strings.HasPrefix(a.key, "res:"):
			list[resourceName(a.key)] = resource.MustParse(a.value)
		case a.key == "taint":
			kv, effect, _ := strings.Cut(a.value, ":")
			k, v, _ := strings.Cut(kv, "=")
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: k, Value: v, Effect: corev1.TaintEffect(effect)})
		case a.key == "cordoned":
			n.Spec.Unschedulable = true
		case a.key == "declares":
			n.Status.DeclaredFeatures = strings.Split(a.value, ",")
		case a.key == "nohost":
			delete(n.Labels, corev1.LabelHostname)
		case a.key == "image":
			name, size, _ := strings.Cut(a.value, "@")
			q := resource.MustParse(size)
			n.Status.Images = append(n.Status.Images, corev1.ContainerImage{Names: []string{name}, SizeBytes: q.Value()})
		default:
			n.Labels[topologyKey(a.key)] = a.value
		}
	}
	n.Status.Allocatable = list
	return n
}

func resourceName(key string) corev1.ResourceName {
	switch key {
	case "mem":
		return corev1.ResourceMemory
	case "eph":
		return corev1.ResourceEphemeralStorage
	}
	return corev1.ResourceName(strings.TrimPrefix(key, "res:"))
}

// parsePod reads: [NAMESPACE/]NAME and, in any order,
//
//	on=NODE prio=N cpu=N mem=N eph=N res:NAME=N init:cpu=N sidecar:cpu=N overhead:cpu=N
//	port=PORT[/PROTO][@IP]  image=NAME  imagevolume=NAME  restartall  claim=NAME  ephemeral=NAME  disk=KIND:NAME[:ro]  owner=KIND/NAME
//	select=K=V,...  affinity='EXPR || EXPR'  prefer=WEIGHT:EXPR  names=NODE,...  tol=KEY[=VALUE][:EFFECT] or tol=*
//	spread=KEY:SKEW:SELECTOR[:OPT,...] (hard)  soft=...  with options mindomains=N taints affinity keys=LABEL
//	near=KEY:SELECTOR[:NSSELECTOR] apart=... wantnear=WEIGHT:KEY:SELECTOR wantapart=...
//	uses=CLAIM,... (to devices; made:TEMPLATE)  terminating victim never nominated=NODE started=SECONDS gate=NAME
//
// Everything else is a label.
func parsePod(words []string) *corev1.Pod {
	namespace, name, ok := strings.Cut(words[0], "/")
	if !ok {
		namespace, name = "default", words[0]
	}
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(words[0]), Labels: map[string]string{}, Generation: 1},
		Spec:       corev1.PodSpec{SchedulerName: config.DefaultName, Containers: []corev1.Container{{Name: "c"}}, Affinity: &corev1.Affinity{}},
		Status:     corev1.PodStatus{Phase: corev1.PodPending},
	}
	for _, a := range attributes(words[1:]) {
		if !setResource(p, a) && !setPlacement(p, a) && !setOther(p, a) {
			p.Labels[a.key] = a.value
		}
	}
	if *p.Spec.Affinity == (corev1.Affinity{}) {
		p.Spec.Affinity = nil
	}
	return p
}

func setResource(p *corev1.Pod, a attribute) bool {
	key, c := a.key, &p.Spec.Containers[0]
	if rest, ok := strings.CutPrefix(key, "overhead:"); ok {
		p.Spec.Overhead = corev1.ResourceList{resourceName(rest): resource.MustParse(a.value)}
		return true
	}
	for _, kind := range []string{"init:", "sidecar:"} {
		rest, ok := strings.CutPrefix(key, kind)
		if !ok {
			continue
		}
		p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{Name: "i"})
		key, c = rest, &p.Spec.InitContainers[len(p.Spec.InitContainers)-1]
		if kind == "sidecar:" {
			always := corev1.ContainerRestartPolicyAlways
			c.RestartPolicy = &always
		}
	}
	switch {
	case key == "cpu", key == "mem", key == "eph", strings.HasPrefix(key, "res:"):
		if c.Resources.Requests == nil {
			c.Resources.Requests = corev1.ResourceList{}
		}
		c.Resources.Requests[resourceName(key)] = resource.MustParse(a.value)
		return true
	}
	return false
}

func setPlacement(p *corev1.Pod, a attribute) bool {
	aff := p.Spec.Affinity
	switch a.key {
	case "select":
		p.Spec.NodeSelector = mustSet(a.value)
	case "affinity", "names":
		if aff.NodeAffinity == nil {
			aff.NodeAffinity = &corev1.NodeAffinity{}
		}
		if a.key == "names" {
			aff.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: strings.Split(a.value, ",")}},
			}}}
			break
		}
		sel := &corev1.NodeSelector{}
		for _, expr := range strings.Split(a.value, "||") {
			sel.NodeSelectorTerms = append(sel.NodeSelectorTerms, nodeTerm(expr))
		}
		aff.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = sel
	case "prefer":
		if aff.NodeAffinity == nil {
			aff.NodeAffinity = &corev1.NodeAffinity{}
		}
		weight, expr, _ := strings.Cut(a.value, ":")
		aff.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution = append(aff.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution,
			corev1.PreferredSchedulingTerm{Weight: atoi(weight), Preference: nodeTerm(expr)})
	case "tol":
		p.Spec.Tolerations = append(p.Spec.Tolerations, toleration(a.value))
	case "spread", "soft":
		p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, spreadConstraint(a.value, a.key == "spread"))
	case "near", "apart", "wantnear", "wantapart":
		setPodAffinity(aff, a)
	default:
		return false
	}
	return true
}

func setPodAffinity(aff *corev1.Affinity, a attribute) {
	if aff.PodAffinity == nil {
		aff.PodAffinity, aff.PodAntiAffinity = &corev1.PodAffinity{}, &corev1.PodAntiAffinity{}
	}
	parts := strings.Split(a.value, ":")
	weight := int32(0)
	if strings.HasPrefix(a.key, "want") {
		weight, parts = atoi(parts[0]), parts[1:]
	}
	term := corev1.PodAffinityTerm{TopologyKey: topologyKey(parts[0]), LabelSelector: mustSelector(parts[1])}
	if len(parts) > 2 {
		term.NamespaceSelector = mustSelector(parts[2])
	}
	weighted := corev1.WeightedPodAffinityTerm{Weight: weight, PodAffinityTerm: term}
	switch a.key {
	case "near":
		x := &aff.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution
		*x = append(*x, term)
	case "apart":
		x := &aff.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
		*x = append(*x, term)
	case "wantnear":
		x := &aff.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution
		*x = append(*x, weighted)
	case "wantapart":
		x := &aff.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution
		*x = append(*x, weighted)
	}
}

func setOther(p *corev1.Pod, a attribute) bool {
	c := &p.Spec.Containers[0]
	switch a.key {
	case "on":
		p.Spec.NodeName = a.value
	case "prio":
		prio := atoi(a.value)
		p.Spec.Priority = &prio
	case "port":
		rest, ip, _ := strings.Cut(a.value, "@")
		port, proto, _ := strings.Cut(rest, "/")
		c.Ports = append(c.Ports, corev1.ContainerPort{HostPort: atoi(port), ContainerPort: atoi(port), Protocol: corev1.Protocol(proto), HostIP: ip})
	case "image":
		c.Image = a.value
	case "restartall": // when its container ends, which not every node can do
		c.RestartPolicyRules = []corev1.ContainerRestartRule{{Action: corev1.ContainerRestartRuleActionRestartAllContainers}}
	case "claim":
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: a.value}}})
	case "uses": // resource claims, or templates of them as made:NAME
		for name := range strings.SplitSeq(a.value, ",") {
			c := corev1.PodResourceClaim{Name: name, ResourceClaimName: &name}
			if template, ok := strings.CutPrefix(name, "made:"); ok {
				c = corev1.PodResourceClaim{Name: template, ResourceClaimTemplateName: &template}
			}
			p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, c)
			p.Spec.Containers[0].Resources.Claims = append(p.Spec.Containers[0].Resources.Claims, corev1.ResourceClaim{Name: c.Name})
		}
	case "imagevolume":
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: a.value}}})
	case "disk":
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "v", VolumeSource: disk(a.value)})
	case "ephemeral":
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: a.value, VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}})
	case "owner":
		kind, name, _ := strings.Cut(a.value, "/")
		yes := true
		p.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: name, UID: types.UID(a.value), Controller: &yes}}
	case "terminating":
		p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	case "victim":
		p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: corev1.PodReasonPreemptionByScheduler}}
	case "never":
		never := corev1.PreemptNever
		p.Spec.PreemptionPolicy = &never
	case "nominated":
		p.Status.NominatedNodeName = a.value
	case "started":
		p.Status.StartTime = &metav1.Time{Time: time.Unix(int64(atoi(a.value)), 0)}
	case "group":
		p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &a.value}
	case "gate":
		p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: a.value}}
	default:
		return false
	}
	return true
}

func disk(s string) (v corev1.VolumeSource) {
	parts := strings.Split(s, ":")
	name, readOnly := parts[1], len(parts) > 2
	switch parts[0] {
	case "gce":
		v.GCEPersistentDisk = &corev1.GCEPersistentDiskVolumeSource{PDName: name, ReadOnly: readOnly}
	case "ebs":
		v.AWSElasticBlockStore = &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: name, ReadOnly: readOnly}
	case "iscsi":
		v.ISCSI = &corev1.ISCSIVolumeSource{IQN: name, ReadOnly: readOnly}
	case "rbd":
		v.RBD = &corev1.RBDVolumeSource{RBDPool: "p", RBDImage: name, CephMonitors: []string{"m"}, ReadOnly: readOnly}
	}
	return v
}

func parseClaim(words []string) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: words[0]}}
	for _, a := range attributes(words[1:]) {
		switch a.key {
		case "volume":
			c.Spec.VolumeName, c.Status.Phase = a.value, corev1.ClaimBound
		case "class":
			c.Spec.StorageClassName = &a.value
		case "mode":
			c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.PersistentVolumeAccessMode(a.value)}
		case "size":
			c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(a.value)}
		case "for":
			c.Annotations = map[string]string{claims.SelectedNode: a.value}
		case "lost":
			c.Status.Phase = corev1.ClaimLost
		case "deleted":
			c.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		}
	}
	return c
}

func parseVolume(words []string) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: words[0], Labels: map[string]string{}},
		Status:     corev1.PersistentVolumeStatus{Phase: corev1.VolumeAvailable},
	}
	for _, a := range attributes(words[1:]) {
		switch a.key {
		case "on":
			v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{nodeTerm(a.value)}}}
		case "class":
			v.Spec.StorageClassName = a.value
		case "size":
			v.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(a.value)}
		case "for":
			v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "default", Name: a.value}
		case "csi":
			v.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: a.value, VolumeHandle: words[0]}
		case "ebs":
			v.Spec.AWSElasticBlockStore = &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: a.value}
		default:
			v.Labels[topologyKey(a.key)] = a.value
		}
	}
	return v
}

func parseClass(words []string) *storagev1.StorageClass {
	sc := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: words[0]}, Provisioner: claims.NoProvisioner}
	for _, a := range attributes(words[1:]) {
		switch a.key {
		case "waits":
			sc.VolumeBindingMode = ptr.To(storagev1.VolumeBindingWaitForFirstConsumer)
		case "by":
			sc.Provisioner = a.value
		case "zones":
			sc.AllowedTopologies = []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{
				{Key: corev1.LabelTopologyZone, Values: strings.Split(a.value, ",")},
			}}}
		}
	}
	return sc
}

func parseSpace(words []string) *storagev1.CSIStorageCapacity {
	c := &storagev1.CSIStorageCapacity{ObjectMeta: metav1.ObjectMeta{Name: words[0]}, NodeTopology: &metav1.LabelSelector{MatchLabels: map[string]string{}}}
	for _, a := range attributes(words[1:]) {
		switch a.key {
		case "class":
			c.StorageClassName = a.value
		case "size":
			c.Capacity = ptr.To(resource.MustParse(a.value))
		default:
			c.NodeTopology.MatchLabels[topologyKey(a.key)] = a.value
		}
	}
	return c
}

func parseAttachment(words []string) *storagev1.VolumeAttachment {
	x := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: words[0]}, Spec: storagev1.VolumeAttachmentSpec{Attacher: "csi.example.com"}}
	for _, a := range attributes(words[1:]) {
		switch a.key {
		case "node":
			x.Spec.NodeName = a.value
		case "volume":
			x.Spec.Source.PersistentVolumeName = &a.value
		}
	}
	return x
}

func parsePromise(words []string) (p snapshot.Promise) {
	for _, a := range attributes(words) {
		switch a.key {
		case "volume":
			p.Volume = a.value
		case "node":
			p.Node = a.value
		}
	}
	return p
}

func toleration(s string) corev1.Toleration {
	if s == "*" {
		return corev1.Toleration{Operator: corev1.TolerationOpExists}
	}
	kv, effect, _ := strings.Cut(s, ":")
	k, v, equal := strings.Cut(kv, "=")
	t := corev1.Toleration{Key: k, Value: v, Effect: corev1.TaintEffect(effect), Operator: corev1.TolerationOpExists}
	if equal {
		t.Operator = corev1.TolerationOpEqual
	}
	return t
}

func spreadConstraint(s string, hard bool) corev1.TopologySpreadConstraint {
	parts := strings.Split(s, ":")
	c := corev1.TopologySpreadConstraint{
		TopologyKey: topologyKey(parts[0]), MaxSkew: atoi(parts[1]), LabelSelector: mustSelector(parts[2]), WhenUnsatisfiable: corev1.ScheduleAnyway,
	}
	if hard {
		c.WhenUnsatisfiable = corev1.DoNotSchedule
	}
	if len(parts) < 4 {
		return c
	}
	honor, ignore := corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore
	for _, opt := range attributes(strings.Split(parts[3], ",")) {
		switch opt.key {
		case "mindomains":
			n := atoi(opt.value)
			c.MinDomains = &n
		case "taints":
			c.NodeTaintsPolicy = &honor
		case "affinity":
			c.NodeAffinityPolicy = &ignore
		case "keys":
			c.MatchLabelKeys = append(c.MatchLabelKeys, opt.value)
		default:
			panic("unknown option " + opt.key)
		}
	}
	return c
}

func nodeTerm(expr string) (t corev1.NodeSelectorTerm) {
	sel, err := labels.Parse(strings.TrimSpace(expr))
	if err != nil {
		panic(err)
	}
	ops := map[selection.Operator]corev1.NodeSelectorOperator{
		selection.In: corev1.NodeSelectorOpIn, selection.Equals: corev1.NodeSelectorOpIn, selection.NotIn: corev1.NodeSelectorOpNotIn,
		selection.NotEquals: corev1.NodeSelectorOpNotIn, selection.Exists: corev1.NodeSelectorOpExists, selection.DoesNotExist: corev1.NodeSelectorOpDoesNotExist,
		selection.GreaterThan: corev1.NodeSelectorOpGt, selection.LessThan: corev1.NodeSelectorOpLt,
	}
	requirements, _ := sel.Requirements()
	for _, r := range requirements {
		t.MatchExpressions = append(t.MatchExpressions, corev1.NodeSelectorRequirement{
			Key: topologyKey(r.Key()), Operator: ops[r.Operator()], Values: r.ValuesUnsorted(),
		})
	}
	return t
}

// mustSelector reads a label selector; "-" is the empty one, "none" is nil.
func mustSelector(s string) *metav1.LabelSelector {
	switch s {
	case "none":
		return nil
	case "-":
		return &metav1.LabelSelector{}
	}
	sel, err := metav1.ParseToLabelSelector(s)
	if err != nil {
		panic(err)
	}
	return sel
}

func mustSet(s string) map[string]string {
	set, err := labels.ConvertSelectorToLabelsMap(s)
	if err != nil {
		panic(err)
	}
	out := map[string]string{}
	for k, v := range set {
		out[topologyKey(k)] = v
	}
	return out
}

func atoi(s string) int32 {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(fmt.Sprintf("number %q: %v", s, err))
	}
	return int32(n)
}
