//! The mutable bag that values are put into by name, and the snapshot taken from it.

use super::choices::Side;
use super::deployment::{self, Contract, feed};
use super::names::{self, Named};
use super::spec::Spec;
use super::table::{Settings, TABLE};
use super::value::Value;
use super::{environment, rules};
use crate::error::{Error, Result, Status};

/// Where values may come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entry {
    /// Names and values that the host program sets; the environment is not read.
    PetPs,
    /// The environment alone; nothing can be set.
    OpLayer,
}

impl Entry {
    /// The entry's name in messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Entry::PetPs => "PetPS",
            Entry::OpLayer => "op-layer",
        }
    }
}

/// A value that somebody gave.
#[derive(Clone, Debug)]
pub(super) struct Given {
    pub value: Value,
    /// `flag --x` or `environment variable X`, for messages.
    pub origin: String,
}

/// Values by name. Each is checked when it is set; [`Options::settings`] checks them against each other.
#[derive(Clone, Debug)]
pub struct Options {
    entry: Entry,
    given: Vec<Option<Given>>,
}

impl Default for Options {
    fn default() -> Options {
        Options::new()
    }
}

impl Options {
    /// The PetPS entry: all defaults, to be changed with [`Options::set`].
    #[must_use]
    pub fn new() -> Options {
        Options { entry: Entry::PetPs, given: vec![None; TABLE.len()] }
    }

    /// The op-layer entry: this process's environment.
    ///
    /// # Errors
    /// See [`Options::from_variables`].
    pub fn from_environment() -> Result<Options> {
        Options::from_variables(std::env::vars_os())
    }

    /// The op-layer entry with these variables as environment. `RECLANE_<NAME>` wins over the names that older systems
    /// had, and those over `RANK` and its relatives.
    ///
    /// # Errors
    /// `UnknownOption` for a `RECLANE_` or `RECSTORE_RDMA_` variable that is no option's, `Unsupported` for one that has
    /// no meaning any more, `OptionType` or `OptionBounds` for a bad value, `OptionConflict` when two spellings of one
    /// variable disagree.
    pub fn from_variables<N, V>(variables: impl IntoIterator<Item = (N, V)>) -> Result<Options>
    where
        N: AsRef<std::ffi::OsStr>,
        V: AsRef<std::ffi::OsStr>,
    {
        let given = environment::read(variables)?;
        Ok(Options { entry: Entry::OpLayer, given })
    }

    /// The entry that this bag belongs to.
    #[must_use]
    pub fn entry(&self) -> Entry {
        self.entry
    }

    /// Sets an option. Dashes and underscores are alike in names and words; the prefixes `rdma-` and `rdma-rc-` may be
    /// left out or added. A later value replaces an earlier one; a refused one changes nothing.
    ///
    /// # Errors
    /// `UnknownOption`, `Unsupported` (a name of the past), `OptionType`, `OptionBounds`; `WrongState` on the op-layer
    /// entry.
    pub fn set(&mut self, name: &str, value: &str) -> Result<()> {
        if self.entry == Entry::OpLayer {
            let shown = names::shown(name);
            return Err(Error::new(
                Status::WrongState,
                format!("option {shown} cannot be set: the op-layer entry takes its values from the environment alone"),
            ));
        }
        let origin = format!("flag --{name}");
        match names::find(name) {
            Some(Named::Option(at)) => {
                let value = TABLE[at].parse(value, &origin)?;
                self.given[at] = Some(Given { value, origin });
                Ok(())
            }
            Some(Named::Legacy(legacy)) => legacy.check(value, &origin),
            None => Err(names::unknown("option", "", name, |spec| spec.name.to_owned())),
        }
    }

    /// An option's value as text: the one that was given, or the default.
    ///
    /// # Errors
    /// `UnknownOption`.
    pub fn get(&self, name: &str) -> Result<String> {
        match names::find(name) {
            Some(Named::Option(at)) => Ok(match &self.given[at] {
                Some(given) => given.value.to_string(),
                None => TABLE[at].default.to_owned(),
            }),
            _ => Err(names::unknown("option", "", name, |spec| spec.name.to_owned())),
        }
    }

    /// Whether somebody gave this option a value.
    ///
    /// # Errors
    /// `UnknownOption`.
    pub fn is_given(&self, name: &str) -> Result<bool> {
        match names::find(name) {
            Some(Named::Option(at)) => Ok(self.given[at].is_some()),
            _ => Err(names::unknown("option", "", name, |spec| spec.name.to_owned())),
        }
    }

    /// The typed snapshot for a server or a client, after checking the values against each other. `Side::Both` checks
    /// only what holds for both. The deployment file is read here, when one is named.
    ///
    /// # Errors
    /// What [`deployment::read`] refuses; `OptionConflict` naming both options, their values and where they came from; `OptionBounds`; `WrongState` for a
    /// server on the op-layer entry, which makes clients only.
    pub fn settings(&self, side: Side) -> Result<Settings> {
        if self.entry == Entry::OpLayer && side == Side::Server {
            return Err(Error::new(
                Status::WrongState,
                "the op-layer entry makes clients only; a server's options are set by name",
            ));
        }
        let file = self.get("deployment-file")?;
        if file.is_empty() {
            return self.complete(side);
        }
        let contract = deployment::read(&file)?;
        self.settings_under(&contract, &format!("deployment file {}", names::shown(&file)), side)
    }

    /// As [`Options::settings`], under a deployment contract that was read already; `origin` says in messages where it
    /// came from.
    ///
    /// # Errors
    /// As [`Options::settings`]; `OptionConflict` naming the option, the contract's field and both values when they
    /// contradict each other.
    pub fn settings_under(&self, contract: &Contract, origin: &str, side: Side) -> Result<Settings> {
        let mut settings = feed::under(self, contract, origin, side)?.complete(side)?;
        settings.contract = Some(contract.digests());
        Ok(settings)
    }

    fn complete(&self, side: Side) -> Result<Settings> {
        let values: Result<Vec<Value>> = TABLE.iter().enumerate().map(|(at, spec)| self.value(at, spec)).collect();
        let mut settings = Settings::from_values(&values?);
        rules::complete(&mut settings, self, side)?;
        rules::check(&settings, self, side)?;
        Ok(settings)
    }

    fn value(&self, at: usize, spec: &Spec) -> Result<Value> {
        match &self.given[at] {
            Some(given) => Ok(given.value.clone()),
            None => spec.parse(spec.default, "default"),
        }
    }

    /// What was given for the option with this field name.
    pub(super) fn given(&self, field: &str) -> Option<&Given> {
        TABLE.iter().position(|spec| spec.field == field).and_then(|at| self.given[at].as_ref())
    }

    /// Gives the option with this field name a value, whatever it had.
    pub(super) fn give(&mut self, field: &str, given: Given) {
        if let Some(at) = TABLE.iter().position(|spec| spec.field == field) {
            self.given[at] = Some(given);
        }
    }
}
