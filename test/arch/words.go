package arch

import (
	"regexp"
	"strings"
	"unicode"
)

// privateWords maps a word that a newcomer cannot look up to what to write instead
// (docs/glossary.md). A part of a name counts too: "leaving" is one word of ReadNodeFacts.
func privateWords() map[string]string {
	words := map[string]string{}
	for instead, list := range map[string]string{
		"again": "anew",
		"nodeFixture, hostileServer, failureCase": "bedside ward wards thief illness illnesses patient",
		"heartbeat":                               "beat beats",
		"brokenActivity, agentPool":               "careless mute crew",
		"agent unreachable, skipReason":           "dark blind spared vacant vacancy vacate powerless",
		"operator action, environment, faultPlan": "deed deeds theatre plot plots diary conductor seat",
		"taskWaiters, admission control":          "desk desks door doors",
		"uncertain":                               "doubt doubts",
		"plan, planned":                           "foresee foresees foreseen foresight",
		"failed, injected fault":                  "guilty guilt suffer suffers suffered suffering struck strike strikes",
		"check, classify":                         "judge judges judged judgement",
		"decommission":                            "leaving",
		"fix":                                     "mend mends mended mending",
		"handle":                                  "obey obeys obeyed",
		"operator":                                "person persons human",
		"observation":                             "sighting sightings",
		"unknown machine":                         "stranger strangers",
		"findSameAction":                          "twin twins",
		"undelivered":                             "unheard",
	} {
		for _, w := range strings.Fields(list) {
			words[w] = instead
		}
	}
	return words
}

// keptName is the search attribute whose name stays, as it is spelled in Go, JSON and flags: a
// renamed attribute would be missing from every workflow that is stored.
var keptName = regexp.MustCompile(`(?i)needs[-_ ]?human`)

// privateReferences are the beginnings of references to documents that are not in the repository.
func privateReferences() []string {
	return []string{
		"seed 00", "01-product", "02-architecture", "03-lifecycles", "04-jobs", "05-api", "06-data", "07-testing", "08-house",
		"09-customer", "10-machine-plan", "11-instances",
	}
}

// nextWord returns the bounds of the first word of the text, at or after from: letters of one word
// of a name in camel case. It returns -1 when there is none.
func nextWord(text string, from int) (start, end int) {
	start = -1
	lower := false
	for i, r := range text[from:] {
		switch {
		case start < 0 && unicode.IsLetter(r):
			start = from + i
		case start >= 0 && (!unicode.IsLetter(r) || lower && unicode.IsUpper(r)):
			return start, from + i
		}
		lower = unicode.IsLower(r)
	}
	return start, len(text)
}
