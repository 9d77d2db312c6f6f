package leasetest

import (
	"regexp"
	"strings"
)

// What databases do to names.
const (
	trimsNames       flaw = "names lose the spaces at their end"
	normalisesNames  flaw = "names are brought to a normal form"
	collatesCase     flaw = "names are compared without their case"
	collatesPadding  flaw = "names are compared without the spaces at their end"
	collatesForms    flaw = "names are compared in a normal form"
	getsFolded       flaw = "Get compares names without their case"
	listsByLike      flaw = "List takes the prefix for a pattern of LIKE"
	listsByGlob      flaw = "List takes the prefix for a glob"
	listsFolded      flaw = "List compares without case"
	listsTrimmed     flaw = "List trims the prefix"
	watchesByLike    flaw = "a watch takes the prefix for a pattern of LIKE"
	watchesByGlob    flaw = "a watch takes the prefix for a glob"
	watchesFolded    flaw = "a watch compares without case"
	watchesEscaped   flaw = "a watch takes a backslash in the prefix for an escape"
	listsByCharacter flaw = "List compares character by character: a letter without its accent is no prefix"
)

var alikeCatches = []catch{
	{trimsNames, []by{{"alike/claims", ruleAlike}}},
	{normalisesNames, []by{{"alike/claims", ruleAlike}}},
	{collatesCase, []by{{"alike/claims", ruleAlike}, {"alike/list", ruleAlike}}},
	{collatesPadding, []by{{"alike/claims", ruleAlike}}},
	{collatesForms, []by{{"alike/claims", ruleAlike}}},
	{getsFolded, []by{{"alike/claims", ruleGet}}},
	{listsByLike, []by{{"alike/list", ruleList}}},
	{listsByGlob, []by{{"alike/list", ruleList}}},
	{listsFolded, []by{{"alike/list", ruleList}}},
	{listsTrimmed, []by{{"alike/list", ruleList}}},
	{listsByCharacter, []by{{"alike/list", ruleList}}},
	{watchesByLike, []by{{"alike/watch", ruleWatchPrefix}, {"alike/deletions", ruleWatchPrefix}}},
	{watchesByGlob, []by{{"alike/watch", ruleWatchPrefix}, {"alike/deletions", ruleWatchPrefix}}},
	{watchesFolded, []by{{"alike/watch", ruleWatchPrefix}, {"alike/deletions", ruleWatchPrefix}}},
	{watchesEscaped, []by{{"alike/watch", ruleWatchPrefix}, {"alike/deletions", ruleWatchPrefix}}},
}

// composed is the normal form C of the letters that the kit uses.
var composed = strings.NewReplacer("e\u0301", "é", "A\u030a", "\u00c5", "\u212b", "\u00c5", "\u1112\u1161\u11ab", "한")

// spelt is what becomes of a claimed name.
func (s *twin) spelt(name string) string {
	switch s.flaw {
	case foldsCase:
		return strings.ToLower(name)
	case truncatesNames:
		return name[:min(len(name), 255)]
	case trimsNames:
		return strings.TrimRight(name, " ")
	case normalisesNames:
		return composed.Replace(name)
	}
	return name
}

// standing is the record that a claim of the name meets.
func (s *twin) standing(name string) *entry {
	if e := s.records[name]; e != nil {
		return e
	}
	for other, e := range s.records {
		if s.is(collatesCase) && strings.EqualFold(name, other) ||
			s.is(collatesPadding) && strings.TrimRight(name, " ") == strings.TrimRight(other, " ") ||
			s.is(collatesForms) && composed.Replace(name) == composed.Replace(other) {
			return e
		}
	}
	return nil
}

func foldedPrefix(name, prefix string) bool {
	return len(name) >= len(prefix) && strings.EqualFold(name[:len(prefix)], prefix)
}

// like matches with a pattern of SQL to which % was added, without an escape.
func like(name, prefix string) bool {
	p := regexp.QuoteMeta(prefix)
	return matched("^"+strings.NewReplacer("%", ".*", "_", ".").Replace(p), name)
}

// glob matches with a pattern of a shell to which * was added.
func glob(name, prefix string) bool {
	p := strings.NewReplacer(".", `\.`, "+", `\+`, "(", `\(`, ")", `\)`, "|", `\|`, "$", `\$`, "{", `\{`, "}", `\}`,
		"*", ".*", "?", ".").Replace(prefix)
	return matched("^"+p, name)
}

// matched is false also for what is no pattern.
func matched(pattern, name string) bool {
	ok, err := regexp.MatchString("(?s)"+pattern, name)
	return err == nil && ok
}

// watched tells whether a watch of prefix is told of a name.
func (s *twin) watched(name, prefix string) bool {
	switch s.flaw {
	case watchesByLike:
		return like(name, prefix)
	case watchesByGlob:
		return glob(name, prefix)
	case watchesFolded:
		return foldedPrefix(name, prefix)
	case watchesEscaped:
		prefix = strings.ReplaceAll(prefix, `\`, "")
	case watchIgnoresPrefix:
		return true
	}
	return strings.HasPrefix(name, prefix)
}
