//! All numbers of the model, and changes to the fitted ones.

use crate::hypervisor::Hypervisor;
use crate::machine::{Error, Machine};
use crate::workload::jobs::Profile;

/// The machines and what jobs do on them.
#[derive(Clone, Debug)]
pub struct Model {
    /// The machines.
    pub machines: Vec<Machine>,
    /// The hypervisors.
    pub hypervisors: Vec<Hypervisor>,
    /// The profiles.
    pub profiles: Vec<Profile>,
}

impl Model {
    /// The parts that come with Poundlock.
    pub fn known() -> Model {
        Model { machines: Machine::known(), hypervisors: Hypervisor::known(), profiles: Profile::known() }
    }

    /// The numbers that were fitted, by name: a machine's, `numaconnect-512/load_share`, or a profile's,
    /// `aim7-3.7/process.computes`.
    pub fn fitted(&self) -> Vec<(String, f64)> {
        let of = |owner: &str, sources: Vec<(String, f64, &str)>| -> Vec<(String, f64)> {
            let fitted = sources.into_iter().filter(|(_, _, source)| source.starts_with("fitted"));
            fitted.map(|(name, value, _)| (format!("{owner}/{name}"), value)).collect()
        };
        let of_profile = |profile: &Profile| {
            let named = |(name, value)| (format!("{}/{name}", profile.name()), value);
            profile.fitted().into_iter().map(named).collect()
        };
        let machines = self.machines.iter().map(|machine| of(machine.name(), machine.sources()));
        let hypervisors = self.hypervisors.iter().map(|known| of(known.name(), known.sources()));
        machines.chain(hypervisors).chain(self.profiles.iter().map(of_profile)).flatten().collect()
    }

    /// The same with another value of a number.
    ///
    /// # Errors
    /// If it makes no sense.
    pub fn with(&self, name: &str, value: f64) -> Result<Model, Error> {
        let mut model = self.clone();
        if let Some((owner, name)) = name.split_once('/') {
            for machine in model.machines.iter_mut().filter(|machine| machine.name() == owner) {
                *machine = machine.with(name, value)?;
            }
            for hypervisor in model.hypervisors.iter_mut().filter(|hypervisor| hypervisor.name() == owner) {
                *hypervisor = hypervisor.with(name, value)?;
            }
            for profile in model.profiles.iter_mut().filter(|profile| profile.name() == owner) {
                *profile = profile.with(name, value);
            }
        }
        Ok(model)
    }
}
