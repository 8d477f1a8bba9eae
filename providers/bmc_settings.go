package providers

import "context"

// BMCSettings is a BMC that shows what root on the machine, or whoever learnt a login, could have
// changed in it or through it.
type BMCSettings interface {
	// ReadSettings reads accounts with their keys, directories of accounts, network, protocols,
	// host interfaces, virtual media, boot order, Secure Boot and firmware versions. It changes
	// nothing.
	ReadSettings(ctx context.Context) (SettingsReport, error)
	// DisableHostInterfaces switches off every way from the machine's own system to the BMC that
	// the BMC lists, and reads them again. It returns how many are off now, and which stay on
	// because the BMC does not let them be switched off. Repeating it changes nothing.
	DisableHostInterfaces(ctx context.Context) (HostInterfaces, error)
}

// SettingsReport is what a BMC says of itself, sorted by name. Two reports of a BMC that nobody has
// changed are equal. Unreadable names the parts that the BMC lists and that could not be read.
type SettingsReport struct {
	Values     []BMCSetting
	Unreadable []string
	// NotOffered names the parts that the BMC links to and does not have.
	NotOffered []string
	// Added are values that a BMC may fail to show: keys and directories of accounts, virtual media
	// and the address of an HTTP boot. NotRead names what was not read of these, and of others that
	// could be changed as well.
	Added   []BMCSetting
	NotRead []string
	// OtherAccounts names the enabled accounts besides that of the login. No report shows whether
	// the password of one was changed.
	OtherAccounts []string
}

// The values of an added setting that is empty, and of one whose part could not be read: then
// nothing is known of the settings whose names begin with its name.
const (
	SettingNone   = "none"
	SettingUnread = "not read"
)

// BMCSetting is one value, such as that of "firmware/BIOS".
type BMCSetting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// HostInterfaces says which ways lead from the machine's own system to its BMC.
type HostInterfaces struct {
	Off    int
	LeftOn []string
}
