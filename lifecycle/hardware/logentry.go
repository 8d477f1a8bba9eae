package hardware

import (
	"crypto/sha256"
	"encoding/hex"
	"time"
)

// LogEntry is one entry of a BMC's log. ID is unique in its log until that is cleared.
type LogEntry struct {
	Service   string    `json:"service"` // URI of the log, or SEL
	ID        string    `json:"id"`
	Severity  string    `json:"severity"` // OK, Warning, Critical, Unknown
	MessageID string    `json:"message_id"`
	Message   string    `json:"message"`
	Created   time.Time `json:"created"` // by the BMC's clock; zero where it does not say
}

// MaxLogText bounds the text of an entry that is kept, in bytes.
const MaxLogText = 1024

// Bounded returns the entry as it is kept.
func (e LogEntry) Bounded() LogEntry {
	e.Service, e.ID, e.MessageID = clip(e.Service), clip(e.ID), clip(e.MessageID)
	e.Message = bounded(e.Message, MaxLogText)
	switch e.Severity {
	case "OK", "Warning", "Critical":
	default:
		e.Severity = "Unknown"
	}
	return e
}

// Digest tells an entry from another one with its id, which a log gives again after it was cleared.
func (e LogEntry) Digest() string {
	sum := sha256.Sum256([]byte(e.Service + "\x00" + e.ID + "\x00" + e.Severity + "\x00" + e.MessageID + "\x00" + e.Message + "\x00" + e.Created.UTC().Format(time.RFC3339)))
	return hex.EncodeToString(sum[:16])
}

// At is when the entry was made: by the BMC's clock where that can be right, or else when it was
// read.
func (e LogEntry) At(read time.Time) time.Time {
	if e.Created.Year() < 2010 || e.Created.After(read.Add(24*time.Hour)) {
		return read
	}
	return e.Created
}
