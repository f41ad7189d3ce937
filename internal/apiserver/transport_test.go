package apiserver

import (
	"encoding/pem"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"strings"
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

// onMemoryOnly are the tests that are not run on etcd, and why.
var onMemoryOnly = map[string]string{
	"TestSuiteHoldsOnEtcdOverHTTPS":                      "runs the others",
	"TestEveryTestRunsOnEtcdAsWell":                      "is about the list of the others",
	"TestWatchEndsInTimeWithABookmark":                   "needs virtual time",
	"TestWatchesLastAsLongAsTheServerIsTold":             "needs virtual time",
	"TestEventsAreKeptAsLongAsTheServerIsTold":           "needs virtual time",
	"TestWatchesAreTraced":                               "has real connections already, and asks little of a store",
	"TestPagesInBrowsersWatchByMessages":                 "has real connections already, and asks little of a store",
	"TestEventsOfSlowRequestsTellWhatTookLong":           "needs virtual time",
	"TestBeginningOfAWatchIsAudited":                     "has real connections already, and asks little of a store",
	"TestProfileTakesAsLongAsItIsAskedTo":                "needs virtual time",
	"TestProfilesAreServedToWhoMayGetThem":               "asks nothing of a store",
	"TestOlderReleasesHaveNoNewerVersions":               "asks nothing of a store",
	"TestEventsOfManyObjectsAreThoseOfEach":              "needs virtual time",
	"TestOldPathsOfWatches":                              "needs virtual time",
	"TestEventsBodiesAndTheStoreAreCounted":              "needs virtual time",
	"TestGracePeriodsAreShortenedToWhatIsLeftOfThem":     "needs virtual time",
	"TestServerTellsItsStatus":                           "asks nothing of a store",
	"TestDocumentsAsOldAsTheirClientsHaveNoVersion":      "asks nothing of a store",
	"TestPathsOfHealthTakeAnyMethod":                     "asks nothing of a store",
	"TestServerTellsWhatItWasTold":                       "asks nothing of a store",
	"TestIssuersThatHaveAnAddressPublishTheirKeys":       "asks nothing of a store",
	"TestServingThatCannotBeIsRefused":                   "asks nothing of a store",
	"TestPagesOfOtherSitesMayAskIfTheyAreNamed":          "asks little of a store",
	"TestClientsAreAskedToConnectAnewAtRandom":           "has real connections already, and asks nothing of a store",
	"TestHTTP2CanBeTurnedOff":                            "has real connections already, and asks little of a store",
	"TestAServerGoesOnForAWhileWhenItIsToldToStop":       "needs virtual time",
	"TestStrangersWithWhomThereIsNoTLSAreCounted":        "has real connections already, and asks nothing of a store",
	"TestSecretsLieEncryptedInTheStore":                  "needs virtual time",
	"TestWhatCannotBeDecryptedIsRefusedAlone":            "needs virtual time",
	"TestMemoryThatRunsOutHoldsUpWhatTakesMuchOfIt":      "needs virtual time",
	"TestCollectionsAreDeletedEightAtATime":              "needs virtual time",
	"TestBodiesOfOneFlowTakeHalfOfTheMemory":             "needs virtual time",
	"TestTooManyRequestsAreToldToComeBack":               "needs virtual time",
	"TestDiscoveryHasAllBuiltInGroups":                   "asks nothing of a store",
	"TestAnswersSayTheirFlowSchema":                      "needs virtual time",
	"TestAFloodDoesNotHoldUpOthers":                      "needs virtual time",
	"TestWatchesTakeSeatsUntilTheyHaveBegun":             "needs virtual time",
	"TestTimeoutBoundsTheWholeRequest":                   "needs virtual time, and real connections already",
	"TestTrickledBodiesHoldUpNobody":                     "has real connections already, and asks nothing of a store",
	"TestAHundredRequestsOfAUserWait":                    "has real connections already, and asks little of a store",
	"TestLongListsOverHTTP2AreThoseOfHTTP1":              "has real connections already, and asks little of a store",
	"TestLongListThatIsNotReadEnds":                      "has real connections already, and asks little of a store",
	"TestClientsThatDoNotReadAreCutOff":                  "has real connections already, and asks nothing of a store",
	"TestStreamsEndWhenTheServerStops":                   "has real connections already, and asks little of a store",
	"TestPodThatIsNowhereHasNoLog":                       "asks little of a store",
	"TestSmallAnswerThatNobodyTakesIsGivenUp":            "has real connections already, and asks nothing of a store",
	"TestManyConnectionsOfStrangersLockNobodyOut":        "has real connections already, and asks little of a store",
	"TestHTTP2IsAsTheSpecificationSays":                  "has real connections already, and asks nothing of a store",
	"TestEveryDeclaredHandlerIsAnActionOrATunnel":        "asks nothing of a store",
	"TestWatchesOfOneConnectionSeeEveryEventOnce":        "has real connections already, and asks little of a store",
	"TestHeartbeatsOfNodesAreToldInTheirOrder":           "has real connections already, and asks little of a store",
	"TestWatchesThatTheirConnectionSendsKeepLittleStack": "has real connections already, and asks little of a store",
	"TestWatchThatFellBehindIsToldSo":                    "has real connections already, and asks little of a store",
	"TestComputedObjectsAreMadeForEachRead":              "is about what no store has",
	"TestComputedObjectsAreReadAlone":                    "the same",
	"TestWatchGoesOnWithWhatHappenedWhileItWasBlocked":   "has real connections already, and asks little of a store",
	"TestWatchThatIsStoppedWithinAnEventIsCutOff":        "has real connections already, and asks little of a store",
	"TestListClient":                                     "is a process of a benchmark",
	"TestWatchClient":                                    "is a process of a benchmark",
	"TestOpenAPIComesAsItIsAskedFor":                     "asks the handler for documents, which are of no store",
	"TestWhatNeedsAnotherResourceIsDroppedWithoutIt":     "is about what comes before the store",
	"TestManyWritersKeepFieldsOfOneObject":               "asks nothing of a store",
	"TestKindsAtRunTimeAreReachedOverHTTPS":              "has real connections already, and asks little of a store",
	"TestWatchTellsOfKindsAtRunTime":                     "has real connections already, and asks little of a store",
	"TestWhoCallsDeprecatedVersionsIsKnownOverRestarts":  "asks little of a store, and tells callers by the address that connections of tests do not have",
	"TestNodesAgentAloneOpensItsTunnel":                  "has real connections already, and asks little of a store",
	"TestWebSocketsToPodsNeedTheRightToCreate":           "is about what comes before the store",
	"TestTellsOfRequestsInNativeHistograms":              "asks nothing of a store",
	"TestMetricsCountAddressesAndPortsThatAreGiven":      "counts what is claimed, which others try on etcd",
	"TestMetricsAndEventsTellWhichNodePortsWereWrong":    "counts what is mended, which others try on etcd",
}

// TestEveryTestRunsOnEtcdAsWell, unless onMemoryOnly says why not.
func TestEveryTestRunsOnEtcdAsWell(t *testing.T) {
	files, err := filepath.Glob("*_test.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("no tests: %v", err)
	}
	declared, listed := map[string]bool{}, onEtcdToo()
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv != nil || !strings.HasPrefix(f.Name.Name, "Test") {
				continue
			}
			declared[f.Name.Name] = true
			if listed[f.Name.Name] == nil && onMemoryOnly[f.Name.Name] == "" {
				t.Errorf("%s: %s runs on the memory store only: add it to onEtcdToo, or to onMemoryOnly with a reason", file, f.Name.Name)
			}
		}
	}
	for name := range onMemoryOnly {
		if !declared[name] || listed[name] != nil {
			t.Errorf("onMemoryOnly names %s, which is on etcd or not there", name)
		}
	}
}

// TestSuiteHoldsOnEtcdOverHTTPS runs the tests of this package again with the
// store and the sockets of a real server.
func TestSuiteHoldsOnEtcdOverHTTPS(t *testing.T) {
	for name, test := range onEtcdToo() {
		t.Run(strings.TrimPrefix(name, "Test"), test)
	}
}

// onEtcdToo are the tests that are run again on etcd.
func onEtcdToo() map[string]func(t *testing.T) {
	list := map[string]func(t *testing.T){
		"TestRequestsAreTraced":                                    TestRequestsAreTraced,
		"TestOnlyAdministratorsSayWhatIsTraced":                    TestOnlyAdministratorsSayWhatIsTraced,
		"TestCallsFromWithinAreTraced":                             TestCallsFromWithinAreTraced,
		"TestDriversSayOfTheirOwnDevicesInTheStatusOfAClaim":       TestDriversSayOfTheirOwnDevicesInTheStatusOfAClaim,
		"TestSlicesAreStoredAsDriversPublishThem":                  TestSlicesAreStoredAsDriversPublishThem,
		"TestReadsOfASharedStoreShowWhatOthersWrote":               TestReadsOfASharedStoreShowWhatOthersWrote,
		"TestOwnersThatAreNamedTwiceAreKeptOnce":                   TestOwnersThatAreNamedTwiceAreKeptOnce,
		"TestClientsShareObjectsByTheirUIDs":                       TestClientsShareObjectsByTheirUIDs,
		"TestWhatIsDeprecatedOrIgnoredOfServicesIsWarnedOf":        TestWhatIsDeprecatedOrIgnoredOfServicesIsWarnedOf,
		"TestKindsThatAreDeprecatedAreWarnedOfByEachRequest":       TestKindsThatAreDeprecatedAreWarnedOfByEachRequest,
		"TestImpersonationIsConstrained":                           TestImpersonationIsConstrained,
		"TestTokensAreAdmittedAndFitTheirAccount":                  TestTokensAreAdmittedAndFitTheirAccount,
		"TestPathsThatKindsAtRunTimeDoNotHaveAreNotThere":          TestPathsThatKindsAtRunTimeDoNotHaveAreNotThere,
		"TestBadDirectivesOfPatchesAreRefused":                     TestBadDirectivesOfPatchesAreRefused,
		"TestAStoreThatReachesNoMajorityIsToldToClients":           TestAStoreThatReachesNoMajorityIsToldToClients,
		"TestAServiceTakesItsAddressByAnIPAddress":                 TestAServiceTakesItsAddressByAnIPAddress,
		"TestAnAddressThatSomethingElseHasIsNotGiven":              TestAnAddressThatSomethingElseHasIsNotGiven,
		"TestAnAddressThatIsTakenForAServiceIsGivenToIt":           TestAnAddressThatIsTakenForAServiceIsGivenToIt,
		"TestAllocationsFromBeforeAddressesWereObjectsAreReplaced": TestAllocationsFromBeforeAddressesWereObjectsAreReplaced,
		"TestServicesGetAddressesOfTheRangesThatAreReady":          TestServicesGetAddressesOfTheRangesThatAreReady,
		"TestADryRunTakesNoAddress":                                TestADryRunTakesNoAddress,
		"TestWatchGoesOnAfterARestart":                             TestWatchGoesOnAfterARestart,
		"TestTablesSayWhichPodsHaveEnded":                          TestTablesSayWhichPodsHaveEnded,
		"TestFlowSchemasAreShownInTheirOrder":                      TestFlowSchemasAreShownInTheirOrder,
		"TestWatchesOfTablesThatCannotBeAreRefused":                TestWatchesOfTablesThatCannotBeAreRefused,
		"TestEventsGoAtOnceWhateverThePolicy":                      TestEventsGoAtOnceWhateverThePolicy,
		"TestGenerationsAndMakingByUpdateAreUpstreams":             TestGenerationsAndMakingByUpdateAreUpstreams,
	}
	maps.Copy(list, ownStoreOnEtcd())
	maps.Copy(list, auditOnEtcd())
	maps.Copy(list, rulesOnEtcd())
	maps.Copy(list, customOnEtcd())
	maps.Copy(list, ownedOnEtcd())
	return list
}

// auditOnEtcd are those of what the audit is told.
func auditOnEtcd() map[string]func(t *testing.T) {
	return map[string]func(t *testing.T){
		"TestWhoDeletesJobsWithoutAPolicyIsWarned": TestWhoDeletesJobsWithoutAPolicyIsWarned,
		"TestAuditEvents":                          TestAuditEvents,
		"TestAuditIDIsTheClientsOrANewOne":         TestAuditIDIsTheClientsOrANewOne,
		"TestAuditKnowsWhereRequestsComeFrom":      TestAuditKnowsWhereRequestsComeFrom,
		"TestWhoShowsNothingIsAuditedAsNobody":     TestWhoShowsNothingIsAuditedAsNobody,
		"TestPanicIsAudited":                       TestPanicIsAudited,
		"TestStrictAuditRefusesWhatItCannotTellOf": TestStrictAuditRefusesWhatItCannotTellOf,
		"TestAdmissionAddsAnnotationsToEvents":     TestAdmissionAddsAnnotationsToEvents,
	}
}

// rulesOnEtcd are those of what is refused of all kinds, and in which forms answers are.
func rulesOnEtcd() map[string]func(t *testing.T) {
	return map[string]func(t *testing.T){
		"TestAnswersTakeTheFormThatIsAskedFor":                            TestAnswersTakeTheFormThatIsAskedFor,
		"TestUpdatesOfSomeKindsNeedARevision":                             TestUpdatesOfSomeKindsNeedARevision,
		"TestListsOfWhatIsDeletedSayFromWhen":                             TestListsOfWhatIsDeletedSayFromWhen,
		"TestWhatIsTheSystemsHasNoManager":                                TestWhatIsTheSystemsHasNoManager,
		"TestFormsNamesAndPathsThatAreNotThereAreRefusedInUpstreamsWords": TestFormsNamesAndPathsThatAreNotThereAreRefusedInUpstreamsWords,
	}
}

// ownStoreOnEtcd are those of a server that has its store to itself.
func ownStoreOnEtcd() map[string]func(t *testing.T) {
	return map[string]func(t *testing.T){
		"TestBadInputIsRefusedInUpstreamsWords":                TestBadInputIsRefusedInUpstreamsWords,
		"TestBadPatchesAreRefusedInUpstreamsWords":             TestBadPatchesAreRefusedInUpstreamsWords,
		"TestRefusedMethodsNameThoseThatThereAre":              TestRefusedMethodsNameThoseThatThereAre,
		"TestUnknownFieldsAreWarnedOf":                         TestUnknownFieldsAreWarnedOf,
		"TestLegacyVersionsAnswerWithAWarning":                 TestLegacyVersionsAnswerWithAWarning,
		"TestRuntimeConfigTurnsVersionsAndResourcesOff":        TestRuntimeConfigTurnsVersionsAndResourcesOff,
		"TestAlphaVersionsAreServedOnlyWhenAskedFor":           TestAlphaVersionsAreServedOnlyWhenAskedFor,
		"TestObjectsAreCreatedReadChangedAndDeleted":           TestObjectsAreCreatedReadChangedAndDeleted,
		"TestDryRunChangesNothing":                             TestDryRunChangesNothing,
		"TestWritesWithoutAChangeWriteNothing":                 TestWritesWithoutAChangeWriteNothing,
		"TestGeneratedNamesHaveARandomEnd":                     TestGeneratedNamesHaveARandomEnd,
		"TestFinalizersKeepAnObjectUntilTheyAreGone":           TestFinalizersKeepAnObjectUntilTheyAreGone,
		"TestPropagationPolicyBecomesAFinalizer":               TestPropagationPolicyBecomesAFinalizer,
		"TestCollectionsAreDeletedBySelector":                  TestCollectionsAreDeletedBySelector,
		"TestTablesHaveTheDeclaredColumns":                     TestTablesHaveTheDeclaredColumns,
		"TestYAMLAndPrettyAnswers":                             TestYAMLAndPrettyAnswers,
		"TestListsAtARevision":                                 TestListsAtARevision,
		"TestSelectorsNarrowLists":                             TestSelectorsNarrowLists,
		"TestForbiddenSaysWhatIsForbidden":                     TestForbiddenSaysWhatIsForbidden,
		"TestImpersonationNeedsPermission":                     TestImpersonationNeedsPermission,
		"TestUnauthenticatedRequestsAreRefused":                TestUnauthenticatedRequestsAreRefused,
		"TestFlowSchemasAndMigrationsLive":                     TestFlowSchemasAndMigrationsLive,
		"TestPodCertificateRequestsLive":                       TestPodCertificateRequestsLive,
		"TestWatchOfALostRevisionIsToldSo":                     TestWatchOfALostRevisionIsToldSo,
		"TestApplyOfAScaleMindsOtherManagers":                  TestApplyOfAScaleMindsOtherManagers,
		"TestMetricsHaveTheNamesThatDashboardsKnow":            TestMetricsHaveTheNamesThatDashboardsKnow,
		"TestTypedClientWorksInBothMediaTypes":                 TestTypedClientWorksInBothMediaTypes,
		"TestWatchTellsOfEveryChange":                          TestWatchTellsOfEveryChange,
		"TestWatchesAgreeOnTheOrder":                           TestWatchesAgreeOnTheOrder,
		"TestWatchListSendsStateThenABookmark":                 TestWatchListSendsStateThenABookmark,
		"TestListsComeInPages":                                 TestListsComeInPages,
		"TestServerSideApplyMergesByOwner":                     TestServerSideApplyMergesByOwner,
		"TestDynamicMetadataAndDiscoveryClientsWork":           TestDynamicMetadataAndDiscoveryClientsWork,
		"TestInformersFollow":                                  TestInformersFollow,
		"TestPodsLeaveGracefully":                              TestPodsLeaveGracefully,
		"TestFieldValidationTellsOfWhatIsUnknownOrTwice":       TestFieldValidationTellsOfWhatIsUnknownOrTwice,
		"TestApplyRefusesFieldsThatTheSchemaLacks":             TestApplyRefusesFieldsThatTheSchemaLacks,
		"TestLabelsAreAddedChangedAndTakenAway":                TestLabelsAreAddedChangedAndTakenAway,
		"TestSelectorsInObjectsAreChecked":                     TestSelectorsInObjectsAreChecked,
		"TestAnnotationsHoldWhatLabelsCannot":                  TestAnnotationsHoldWhatLabelsCannot,
		"TestRecommendedLabelsFindAnApplication":               TestRecommendedLabelsFindAnApplication,
		"TestVersionsAreNamedByTheirMaturity":                  TestVersionsAreNamedByTheirMaturity,
		"TestEveryKindIsListedInBothSerialisations":            TestEveryKindIsListedInBothSerialisations,
		"TestNoObjectIsLeftInANamespaceThatGoes":               TestNoObjectIsLeftInANamespaceThatGoes,
		"TestQuotasAreCharged":                                 TestQuotasAreCharged,
		"TestLabelSelectors":                                   TestLabelSelectors,
		"TestFieldSelectors":                                   TestFieldSelectors,
		"TestNamesAndUIDs":                                     TestNamesAndUIDs,
		"TestTheServerFillsInDefaultsOnce":                     TestTheServerFillsInDefaultsOnce,
		"TestStrategicMergeGoesByKey":                          TestStrategicMergeGoesByKey,
		"TestReplaceDropsWhatIsNotInTheFile":                   TestReplaceDropsWhatIsNotInTheFile,
		"TestStatusBelongsToTheSystem":                         TestStatusBelongsToTheSystem,
		"TestDiscoveryAndVersion":                              TestDiscoveryAndVersion,
		"TestNamesAreGeneratedAfterMutatingAdmission":          TestNamesAreGeneratedAfterMutatingAdmission,
		"TestWhoNamesAUIDMeansNoNewObject":                     TestWhoNamesAUIDMeansNoNewObject,
		"TestScaleIsShownAsATable":                             TestScaleIsShownAsATable,
		"TestPatchOfAScaleNamesNoRevision":                     TestPatchOfAScaleNamesNoRevision,
		"TestServeEndsWatchesWhenItIsToldToStop":               TestServeEndsWatchesWhenItIsToldToStop,
		"TestWhoAsksIsReadFromTheClientCertificate":            TestWhoAsksIsReadFromTheClientCertificate,
		"TestServersOfOneStoreNeverGiveAnAddressTwice":         TestServersOfOneStoreNeverGiveAnAddressTwice,
		"TestAllocationsThatNothingUsesAreGivenUp":             TestAllocationsThatNothingUsesAreGivenUp,
		"TestAllocationsOfObjectsFromElsewhereAreMade":         TestAllocationsOfObjectsFromElsewhereAreMade,
		"TestWhatIsCachedIsWhatWasStored":                      TestWhatIsCachedIsWhatWasStored,
		"TestTimesOfClientsAreKeptInWholeSeconds":              TestTimesOfClientsAreKeptInWholeSeconds,
		"TestListsThatAreEmptyAreShownAsTheyWillBeAfterAStart": TestListsThatAreEmptyAreShownAsTheyWillBeAfterAStart,
		"TestStatusOfAnApprovedRequestIsWritten":               TestStatusOfAnApprovedRequestIsWritten,
		"TestEvictionSpendsTheDisruptionBudget":                TestEvictionSpendsTheDisruptionBudget,
		"TestEvictionsAreRefusedInUpstreamsWords":              TestEvictionsAreRefusedInUpstreamsWords,
		"TestEvictionsOfOlderClientsAreUnderstood":             TestEvictionsOfOlderClientsAreUnderstood,
		"TestEvictionsSideBySideStayWithinTheBudget":           TestEvictionsSideBySideStayWithinTheBudget,
		"TestUnhealthyPodThatGetsWellMeanwhileIsNotEvicted":    TestUnhealthyPodThatGetsWellMeanwhileIsNotEvicted,
		"TestBindingEndsANomination":                           TestBindingEndsANomination,
		"TestRequestsForCertificatesNameWhoMakesThem":          TestRequestsForCertificatesNameWhoMakesThem,
		"TestPodsAreBoundByEitherResource":                     TestPodsAreBoundByEitherResource,
		"TestNamespacesLeaveWhenTheyAreFinalized":              TestNamespacesLeaveWhenTheyAreFinalized,
		"TestServicesAreGivenTheirAddresses":                   TestServicesAreGivenTheirAddresses,
		"TestCallersWithinHaveTheVerbsThatHTTPHas":             TestCallersWithinHaveTheVerbsThatHTTPHas,
		"TestOptionsAreCheckedAlikeWithinAndOverHTTP":          TestOptionsAreCheckedAlikeWithinAndOverHTTP,
		"TestAuthorizersAreAskedTheSameWithinAndOverHTTP":      TestAuthorizersAreAskedTheSameWithinAndOverHTTP,
		"TestCallsFromWithinAreCounted":                        TestCallsFromWithinAreCounted,
		"TestBodiesThatAreNoObjectsAreRefusedFromWithin":       TestBodiesThatAreNoObjectsAreRefusedFromWithin,
		"TestTransportInProcessPassesTheSuite":                 TestTransportInProcessPassesTheSuite,
		"TestTransportOverHTTPSPassesTheSuite":                 TestTransportOverHTTPSPassesTheSuite,
		"TestIntegersSurviveEveryKindOfWrite":                  TestIntegersSurviveEveryKindOfWrite,
		"TestListsFollowTheTableOfResourceVersions":            TestListsFollowTheTableOfResourceVersions,
		"TestStatesOfLateAreNotReadFromTheStore":               TestStatesOfLateAreNotReadFromTheStore,
		"TestPathsThatAreNoResourcesMayEndInASlash":            TestPathsThatAreNoResourcesMayEndInASlash,
		"TestContinueTokensThatLeadElsewhereAreRefused":        TestContinueTokensThatLeadElsewhereAreRefused,
		"TestProxyPathIsWhatFollowsTheSubresource":             TestProxyPathIsWhatFollowsTheSubresource,
		"TestConnectionsToNodeAgentsAreKept":                   TestConnectionsToNodeAgentsAreKept,
		"TestLogOverWebSocketIsComplete":                       TestLogOverWebSocketIsComplete,
		"TestTerminalHasNoStandardErrorOfItsOwn":               TestTerminalHasNoStandardErrorOfItsOwn,
		"TestStoreOfUpstreamIsServedAndHandedBack":             TestStoreOfUpstreamIsServedAndHandedBack,
		"TestDefaultsOfWhatUpstreamStoredAreShown":             TestDefaultsOfWhatUpstreamStoredAreShown,
		"TestSelectorsAreOfOneKindOrOfTwo":                     TestSelectorsAreOfOneKindOrOfTwo,
		"TestLabelsHaveAForm":                                  TestLabelsHaveAForm,
	}
}

// remote is the API as another machine sees it.
func (f *fixture) remote(t *testing.T, agent string) client.Transport {
	t.Helper()
	server := f.url()
	tr, err := https.New(https.Options{
		Servers: []string{server}, Agent: agent, CA: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.http.Certificate().Raw}), PageSize: 7,
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
