// Package sites knows how citations of requirements look in each kind of file: Go tests,
// scripts of the simulation, transcripts of kubectl, stories of pods, scripts of the scheduler,
// sections of DNS and proxy, cases in YAML. It finds them, for the house rules that count them,
// and it breaks the expectation beside one, for the audit, which then runs the test to see whether it
// notices.
//
// What lives here: functions from text to text, without files and processes.
package sites
