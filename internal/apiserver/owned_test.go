package apiserver

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ownedOnEtcd are the tests of this file, which are run on etcd, too.
func ownedOnEtcd() map[string]func(t *testing.T) {
	return map[string]func(t *testing.T){
		"TestAppliesMakeObjectsAtVersionsThatAreNotStored": TestAppliesMakeObjectsAtVersionsThatAreNotStored,
	}
}

// TestAppliesMakeObjectsAtVersionsThatAreNotStored: what is not there has no fields at any version.
func TestAppliesMakeObjectsAtVersionsThatAreNotStored(t *testing.T) {
	f := newFixture(t)
	for path, doc := range map[string]string{
		"/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers/one": `{"apiVersion":"autoscaling/v1","kind":"HorizontalPodAutoscaler","metadata":{"name":"one"},"spec":{"maxReplicas":3,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"d"}}}`,
		"/apis/events.k8s.io/v1/namespaces/default/events/one":                 `{"apiVersion":"events.k8s.io/v1","kind":"Event","metadata":{"name":"one"},"eventTime":"2017-08-09T15:04:05.000000Z","reportingController":"k8s.io/c","reportingInstance":"i","action":"A","reason":"R","type":"Normal","regarding":{"namespace":"default"}}`,
		"/apis/storagemigration.k8s.io/v1beta1/storageversionmigrations/one":   `{"apiVersion":"storagemigration.k8s.io/v1beta1","kind":"StorageVersionMigration","metadata":{"name":"one"},"spec":{"resource":{"group":"g","resource":"r"}}}`,
	} {
		for _, code := range []int{201, 200} {
			got := decoded[metav1.PartialObjectMetadata](t, f.must(code, "PATCH", path+"?fieldManager=m", doc, applyPatch))
			if of := got.ManagedFields; len(of) != 1 || of[0].Manager != "m" || of[0].APIVersion != got.APIVersion {
				t.Errorf("%s: got owners %+v, want m alone, by fields of %s", path, of, got.APIVersion)
			}
		}
	}
}
