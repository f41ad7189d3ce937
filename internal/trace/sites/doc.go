// Package sites knows how citations of requirements look in each kind of file: Go tests,
// scripts of the simulation, transcripts of kubectl, stories of pods, scripts of the scheduler,
// sections of DNS and proxy, cases in YAML. It finds them, which is how house rules
// count them, and it breaks what is expected beside one, which is how an audit tries
// whether the test would notice.
//
// What lives here: functions from text to text, without files and processes.
package sites
