package apiserver

import (
	"encoding/pem"
	"testing"

	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/client/clienttest"
	"github.com/kemudi/kemudi/internal/client/https"
	"github.com/kemudi/kemudi/internal/task"
)

func TestTransportInProcessPassesTheSuite(t *testing.T) {
	clienttest.Run(t, func(t *testing.T) client.Transport { return newFixture(t).As(admin, clienttest.Agent) })
}

func TestTransportOverHTTPSPassesTheSuite(t *testing.T) {
	clienttest.Run(t, func(t *testing.T) client.Transport { return newFixture(t).remote(t, clienttest.Agent) })
}

// onEtcd begins the names of tests whose fixtures are on etcd and asked over HTTPS.
const onEtcd = "TestSuiteHoldsOnEtcdOverHTTPS/"

// TestSuiteHoldsOnEtcdOverHTTPS runs the tests of this package again with the
// store and the sockets of a real server; left out are those that need virtual
// time or are about the memory store, and those that go over HTTPS to a real
// listener in any case.
func TestSuiteHoldsOnEtcdOverHTTPS(t *testing.T) {
	t.Run("Transport", func(t *testing.T) {
		clienttest.Run(t, func(t *testing.T) client.Transport { return newFixture(t).remote(t, clienttest.Agent) })
	})
	t.Run("Transport in process", func(t *testing.T) {
		clienttest.Run(t, func(t *testing.T) client.Transport { return newFixture(t).As(admin, clienttest.Agent) })
	})
	for name, test := range map[string]func(t *testing.T){
		"BadInputIsRefusedInUpstreamsWords":         TestBadInputIsRefusedInUpstreamsWords,
		"BadPatchesAreRefusedInUpstreamsWords":      TestBadPatchesAreRefusedInUpstreamsWords,
		"RefusedMethodsNameThoseThatThereAre":       TestRefusedMethodsNameThoseThatThereAre,
		"ApplyOfAScaleMindsOtherManagers":           TestApplyOfAScaleMindsOtherManagers,
		"UnknownFieldsAreWarnedOf":                  TestUnknownFieldsAreWarnedOf,
		"LegacyVersionsAnswerWithAWarning":          TestLegacyVersionsAnswerWithAWarning,
		"RuntimeConfigTurnsVersionsAndResourcesOff": TestRuntimeConfigTurnsVersionsAndResourcesOff,
		"ObjectsAreCreatedReadChangedAndDeleted":    TestObjectsAreCreatedReadChangedAndDeleted,
		"DryRunChangesNothing":                      TestDryRunChangesNothing,
		"WritesWithoutAChangeWriteNothing":          TestWritesWithoutAChangeWriteNothing,
		"GeneratedNamesHaveARandomEnd":              TestGeneratedNamesHaveARandomEnd,
		"FinalizersKeepAnObjectUntilTheyAreGone":    TestFinalizersKeepAnObjectUntilTheyAreGone,
		"PropagationPolicyBecomesAFinalizer":        TestPropagationPolicyBecomesAFinalizer,
		"CollectionsAreDeletedBySelector":           TestCollectionsAreDeletedBySelector,
		"TablesHaveTheDeclaredColumns":              TestTablesHaveTheDeclaredColumns,
		"YAMLAndPrettyAnswers":                      TestYAMLAndPrettyAnswers,
		"ListsAtARevision":                          TestListsAtARevision,
		"SelectorsNarrowLists":                      TestSelectorsNarrowLists,
		"ForbiddenSaysWhatIsForbidden":              TestForbiddenSaysWhatIsForbidden,
		"ImpersonationNeedsPermission":              TestImpersonationNeedsPermission,
		"UnauthenticatedRequestsAreRefused":         TestUnauthenticatedRequestsAreRefused,
		"TypedClientWorksInBothMediaTypes":          TestTypedClientWorksInBothMediaTypes,
		"WatchTellsOfEveryChange":                   TestWatchTellsOfEveryChange,
		"WatchesAgreeOnTheOrder":                    TestWatchesAgreeOnTheOrder,
		"WatchListSendsStateThenABookmark":          TestWatchListSendsStateThenABookmark,
		"ListsComeInPages":                          TestListsComeInPages,
		"ServerSideApplyMergesByOwner":              TestServerSideApplyMergesByOwner,
		"DynamicMetadataAndDiscoveryClientsWork":    TestDynamicMetadataAndDiscoveryClientsWork,
		"InformersFollow":                           TestInformersFollow,
		"PodsLeaveGracefully":                       TestPodsLeaveGracefully,
		"LabelSelectors":                            TestLabelSelectors,
		"FieldSelectors":                            TestFieldSelectors,
		"NamesAndUIDs":                              TestNamesAndUIDs,
		"TheServerFillsInDefaultsOnce":              TestTheServerFillsInDefaultsOnce,
		"StrategicMergeGoesByKey":                   TestStrategicMergeGoesByKey,
		"ReplaceDropsWhatIsNotInTheFile":            TestReplaceDropsWhatIsNotInTheFile,
		"StatusBelongsToTheSystem":                  TestStatusBelongsToTheSystem,
		"DiscoveryAndVersion":                       TestDiscoveryAndVersion,
		"ClaimsOfObjectsFromElsewhereAreTaken":      TestClaimsOfObjectsFromElsewhereAreTaken,
		"EvictionSpendsTheDisruptionBudget":         TestEvictionSpendsTheDisruptionBudget,
		"PodsAreBoundByEitherResource":              TestPodsAreBoundByEitherResource,
		"NamespacesLeaveWhenTheyAreFinalized":       TestNamespacesLeaveWhenTheyAreFinalized,
		"ServicesClaimTheirAddresses":               TestServicesClaimTheirAddresses,
	} {
		t.Run(name, test)
	}
}

// remote is the API as another machine sees it.
func (f *fixture) remote(t *testing.T, agent string) client.Transport {
	t.Helper()
	server := f.url()
	tr, err := https.New(https.Options{
		Server: server, Agent: agent, CA: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.http.Certificate().Raw}), PageSize: 7,
	})
	if err != nil {
		t.Fatal(err)
	}
	g := task.NewGroup(t.Context())
	g.Go("remote", tr.Run)
	t.Cleanup(func() {
		g.Cancel(nil)
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
	return tr
}
