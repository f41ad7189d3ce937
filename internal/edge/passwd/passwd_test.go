package passwd

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// What openssl, htpasswd and crypt(3) have made of "secret".
var hashes = []string{
	"$apr1$saltsalt$LrttParrLPdxvgutaSXWJ0",
	"$1$saltsalt$9xy1btjgzLYfb7hivXtC//",
	"$5$saltsalt$0IyaXrmV7.sGNS6tirgqHLqX/G.FBvgkYA.lpPdS5sA",
	"$6$saltsalt$TVLlQcbpFVof5W3Yz4DTP6gRstiNuHwwTt6GLc1E5n0U0aDehy0S5knV8wiOQSpT0Y77vwPZN.Pq.H91p5hVO1",
	"$6$rounds=1500$salty$ckBzgbQqxVmjjlMB7t118q5PLeZ72CbEWosRw1YNqcBe3uo2V5sqFKFsmwSpMZLjfcQfC793H9P99xb5te9tf0",
	"$2y$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a",
	"{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=",
	"{SSHA}gVK8WC9YyFT1gMsQHTGCgT3sSv5zYWx0",
	"{PLAIN}secret",
}

func TestPasswordsMatchTheirHashesAlone(t *testing.T) {
	for _, hash := range hashes {
		if !Known(hash) || !Match(hash, "secret") {
			t.Errorf("%s: the password does not match", hash)
		}
		for _, other := range []string{"", "Secret", "secret ", "secre", strings.Repeat("x", 100), strings.Repeat("x", 1000)} {
			if Match(hash, other) {
				t.Errorf("%s: %.10q matches", hash, other)
			}
		}
	}
	const long = "a much longer password that has more than sixty-four bytes in it, really"
	for hash, password := range map[string]string{
		"$apr1$saltsalt$a8ml/vK5HEjiZ5oypDWA7/":                                                              "",
		"$apr1$saltsalt$c/s32qMSUJ1MvjbNs1ZK11":                                                              long,
		"$1$saltsalt$jhFOSdaOZiqr3I.ItGf.t0":                                                                 long,
		"$5$saltsalt$IcxrOEyYWZGiVyVWtwQM6ckVs39hhzWQDepkDoslB88":                                            long,
		"$6$saltsalt$revoQql7srPiyIGo6Vmx.78S7TpeSsgzkiURALJkHOKlFrAUwHx3FHh4T9CsVRLz2bwYuX4SROy30oPWMNT4p1": long,
	} {
		if !Match(hash, password) {
			t.Errorf("%s: %q does not match", hash, password)
		}
	}
}

func TestWhatCannotBeReadMatchesNothing(t *testing.T) {
	for _, hash := range []string{
		"", "x", "secret", "aZ3dESHashXyz", "$2y$31$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a", "$2y$", "$6$", "$5$rounds=99999999$salt$x", "$6$rounds=x$salt$x",
		"$1$", "$apr1$", "{SHA}", "{SHA}!", "{SSHA}YQ==", "{MD5}x",
	} {
		for _, password := range []string{"", "secret", hash} {
			if Match(hash, password) {
				t.Errorf("%q: %q matches", hash, password)
			}
		}
	}
}

func TestFilesAreReadByLine(t *testing.T) {
	users, problems := Parse([]byte("# people\nann:{PLAIN}a\r\n\nbob:{SHA}x:a comment\nnobody\n:{PLAIN}x\neve:plain\n"))
	if got := slices.Sorted(maps.Keys(users)); !slices.Equal(got, []string{"ann", "bob"}) || users["ann"] != "{PLAIN}a" || users["bob"] != "{SHA}x" {
		t.Errorf("got %v, want ann and bob", users)
	}
	want := []string{"line 5 is not a name and a hash with a colon between", "line 6 is not a name and a hash with a colon between", `the hash of "eve" is of no kind that is read here`}
	if !slices.Equal(problems, want) {
		t.Errorf("got %q, want %q", problems, want)
	}
}
