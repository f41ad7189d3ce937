package core_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/kemudi/kemudi/internal/api/core"
)

// Each line: what a pod named web says, and what that refers to.
const references = `
spec: {serviceAccountName: runner} => serviceaccounts runner
spec: {imagePullSecrets: [{name: pull}, {}]} => secrets pull
spec: {initContainers: [{envFrom: [{secretRef: {name: a}}, {configMapRef: {name: b}}]}]} => secrets a, configmaps b
spec: {containers: [{env: [{name: X, value: x}, {valueFrom: {secretKeyRef: {name: a, key: x}}}, {valueFrom: {configMapKeyRef: {name: b, key: x}}}]}]} => secrets a, configmaps b
spec: {ephemeralContainers: [{env: [{valueFrom: {secretKeyRef: {name: a, key: x}}}], envFrom: [{configMapRef: {name: b}}]}]} => configmaps b, secrets a
spec: {resourceClaims: [{name: x, resourceClaimName: gpu}, {name: y, resourceClaimTemplateName: nic}]} => resourceclaims gpu, resourceclaims
spec: {volumes: [{name: v, secret: {secretName: a}}, {name: w, configMap: {name: b}}]} => secrets a, configmaps b
spec: {volumes: [{name: v, secret: {}}, {name: w, configMap: {}}, {name: x, csi: {nodePublishSecretRef: {}}}]} =>
spec: {volumes: [{name: v, persistentVolumeClaim: {claimName: data}}, {name: scratch, ephemeral: {}}]} => persistentvolumeclaims data, persistentvolumeclaims web-scratch
spec: {volumes: [{name: v, projected: {sources: [{secret: {name: a}}, {configMap: {name: b}}, {downwardAPI: {}}]}}]} => secrets a, configmaps b
spec: {serviceAccountName: runner, volumes: [{name: v, projected: {sources: [{serviceAccountToken: {}}]}}]} => serviceaccounts runner, serviceaccounts/token runner
spec: {volumes: [{name: v, projected: {sources: [{serviceAccountToken: {}}]}}]} => serviceaccounts/token
spec: {volumes: [{name: v, projected: {sources: [{clusterTrustBundle: {name: ca}}, {clusterTrustBundle: {signerName: x.io/y}}]}}]} => clustertrustbundles ca, clustertrustbundles x.io/y
spec: {volumes: [{name: v, projected: {sources: [{podCertificate: {signerName: x.io/y}}]}}]} => podcertificates x.io/y
spec: {volumes: [{name: v, csi: {driver: d, nodePublishSecretRef: {name: a}}}]} => csidrivers d, secrets a
spec: {volumes: [{name: v, azureFile: {secretName: a, shareName: x}}, {name: w, cephfs: {secretRef: {name: b}}}, {name: x, cinder: {secretRef: {name: c}}}]} => secrets a, secrets b, secrets c
spec: {volumes: [{name: v, flexVolume: {secretRef: {name: a}}}, {name: w, iscsi: {secretRef: {name: b}}}, {name: x, rbd: {secretRef: {name: c}}}]} => secrets a, secrets b, secrets c
spec: {volumes: [{name: v, scaleIO: {secretRef: {name: a}}}, {name: w, storageos: {secretRef: {name: b}}}]} => secrets a, secrets b
spec: {volumes: [{name: v, glusterfs: {endpoints: e, path: x}}]} => endpoints e
spec: {volumes: [{name: v, emptyDir: {}}, {name: w, hostPath: {path: /x}}, {name: x, nfs: {server: x}}, {name: y, image: {reference: z}}]} =>
status: {resourceClaimStatuses: [{name: x, resourceClaimName: other}], extendedResourceClaimStatus: {resourceClaimName: third}} =>
`

func TestPodsReferToWhatTheirNodesReadForThem(t *testing.T) {
	for line := range strings.Lines(strings.TrimSpace(references)) {
		text, want, _ := strings.Cut(strings.TrimSpace(line), "=>")
		p := &corev1.Pod{}
		if err := yaml.UnmarshalStrict([]byte(text), p); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		p.Name = "web"
		var got []string
		for r := range core.References(p) {
			got = append(got, strings.TrimSpace(fmt.Sprintf("%s %s", r.Kind, r.Name)))
		}
		if got, want := strings.Join(got, ", "), strings.TrimSpace(want); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
		for range core.References(p) {
			break // what goes on after it panics
		}
	}
}

// notRead are the fields of a pod's spec that look as if they named an object
// which the node has to read for the pod alone, and do not. "c" is any container,
// "v" a volume.
var notRead = strings.Fields(`
	v.name c.name c.env.name c.ports.name c.volumeMounts.name c.volumeDevices.name c.resources.claims.name resources.claims.name resourceClaims.name
	c.env.valueFrom.fileKeyRef.volumeName c.env.valueFrom.resourceFieldRef.containerName v.downwardAPI.items.resourceFieldRef.containerName
	v.projected.sources.downwardAPI.items.resourceFieldRef.containerName c.targetContainerName c.resizePolicy.resourceName
	schedulingGates.name securityContext.sysctls.name dnsConfig.options.name dnsConfig.nameservers hostname hostAliases.hostnames hostnameOverride os.name
	c.livenessProbe.httpGet.httpHeaders.name c.readinessProbe.httpGet.httpHeaders.name c.startupProbe.httpGet.httpHeaders.name
	c.lifecycle.postStart.httpGet.httpHeaders.name c.lifecycle.preStop.httpGet.httpHeaders.name
	securityContext.windowsOptions.runAsUserName c.securityContext.windowsOptions.runAsUserName
	securityContext.windowsOptions.gmsaCredentialSpecName c.securityContext.windowsOptions.gmsaCredentialSpecName

	nodeName schedulerName priorityClassName runtimeClassName schedulingGroup.podGroupName evictionResponders.name resourceClaims.resourceClaimTemplateName

	v.gcePersistentDisk.pdName v.iscsi.initiatorName v.flocker.datasetName v.azureFile.shareName v.azureDisk.diskName
	v.vsphereVolume.storagePolicyName v.scaleIO.volumeName v.storageos.volumeName v.storageos.volumeNamespace
	v.ephemeral.volumeClaimTemplate.spec.volumeName v.ephemeral.volumeClaimTemplate.spec.storageClassName
	v.ephemeral.volumeClaimTemplate.spec.volumeAttributesClassName v.ephemeral.volumeClaimTemplate.spec.dataSource.name
	v.ephemeral.volumeClaimTemplate.spec.dataSourceRef.name v.ephemeral.volumeClaimTemplate.spec.dataSourceRef.namespace
`)

// A field that a new version of the API adds fails here until somebody says what
// it is.
func TestNoNameInAPodIsForgotten(t *testing.T) {
	found := 0
	var seen []string
	eachString(reflect.TypeFor[corev1.PodSpec](), nil, func(path []string) {
		last := strings.ToLower(path[len(path)-1])
		if !strings.Contains(last, "name") && !strings.HasSuffix(last, "ref") && last != "endpoints" || slices.Contains(path, "affinity") {
			return
		}
		p := &corev1.Pod{}
		set(reflect.ValueOf(&p.Spec).Elem(), path, "it")
		named := false
		for r := range core.References(p) {
			named = named || r.Name == "it"
		}
		short := shorten(path)
		seen = append(seen, short)
		switch listed := slices.Contains(notRead, short); {
		case named && listed:
			t.Errorf("%s: is listed as no reference, and is found", strings.Join(path, "."))
		case named:
			found++
		case !listed:
			t.Errorf("%s: is not found; make it a reference or list it", strings.Join(path, "."))
		}
	})
	for _, field := range notRead {
		if !slices.Contains(seen, field) {
			t.Errorf("%s: is listed, and pods have no such field", field)
		}
	}
	if found < 30 {
		t.Errorf("found %d references, want 30 or more: the test looks at too little", found)
	}
}

// eachString calls f with the path of each string in a type, by names in JSON.
func eachString(t reflect.Type, path []string, f func(path []string)) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice:
		eachString(t.Elem(), path, f)
	case reflect.String:
		f(path)
	case reflect.Struct:
		if t.PkgPath() != "k8s.io/api/core/v1" {
			return
		}
		for i := range t.NumField() {
			field := t.Field(i)
			if field.Anonymous {
				eachString(field.Type, path, f)
				continue
			}
			eachString(field.Type, append(slices.Clip(path), jsonName(&field)), f)
		}
	}
}

func jsonName(f *reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

// set sets one string in a value, and makes what is on the way to it.
func set(v reflect.Value, path []string, to string) bool {
	switch v.Kind() {
	case reflect.Pointer:
		fresh := reflect.New(v.Type().Elem())
		if !set(fresh.Elem(), path, to) {
			return false
		}
		v.Set(fresh)
		return true
	case reflect.Slice:
		fresh := reflect.MakeSlice(v.Type(), 1, 1)
		if !set(fresh.Index(0), path, to) {
			return false
		}
		v.Set(fresh)
		return true
	case reflect.String:
		v.SetString(to)
		return len(path) == 0
	case reflect.Struct:
		for i := range v.NumField() {
			field := v.Type().Field(i)
			if field.Anonymous && set(v.Field(i), path, to) || len(path) > 0 && jsonName(&field) == path[0] && set(v.Field(i), path[1:], to) {
				return true
			}
		}
	}
	return false
}

func shorten(path []string) string {
	switch path[0] {
	case "initContainers", "containers", "ephemeralContainers":
		path = append([]string{"c"}, path[1:]...)
	case "volumes":
		path = append([]string{"v"}, path[1:]...)
	}
	return strings.Join(path, ".")
}

func TestPodsWithoutReferencesCostNothing(t *testing.T) {
	p := &corev1.Pod{Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "c", Env: []corev1.EnvVar{{Name: "X", Value: "x"}}}},
		Volumes:    []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
	}}
	n := 0
	if got := testing.AllocsPerRun(100, func() {
		for range core.References(p) {
			n++
		}
	}); got != 0 || n != 0 {
		t.Errorf("got %v allocations and %d references, want none", got, n)
	}
}
