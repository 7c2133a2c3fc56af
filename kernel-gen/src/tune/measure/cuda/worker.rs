//! The side of the process that holds the GPU: loads, runs, checks, times.

use super::loaded::Ready;
use super::peers::{self, Libraries, Pick};
use super::protocol::{self, Device, Reply, Request, Stage};
use super::stop::Stop;
use super::task::{Task, Tasks, Tell, buffers};
use super::timing::{LAUNCH_US, budget_s, calls, least_us};
use super::vendor::PeerWay;
use crate::records::{Failure, FailureKind, Timing};
use crate::tune::measure::pipeline::failure;
use crate::tune::measure::{Peer, PeerTiming, Sampling};
use crate::workload::Workload;
use kernel_gen_runtime::cuda::candidate::{Begin, Bench, Bound, Graph, Guarded};
use std::io::{self, Read, Write};

/// Holds a GPU and measures what it is sent, until the input ends or the GPU's context is lost. This is what the command
/// `worker` does; the measurer that started the process is at the other end.
///
/// # Errors
/// If the input or the output fails.
pub fn serve(input: &mut impl Read, output: &mut impl Write, device: usize) -> io::Result<()> {
    let bench = match Bench::open(device) {
        Ok(bench) => bench,
        Err(error) => return protocol::write(output, &Reply::NoDevice(error.to_string()), &[]),
    };
    let facts = bench.facts();
    let pair = |(major, minor): (i32, i32)| (major.unsigned_abs(), minor.unsigned_abs());
    let device = Device {
        name: facts.name.clone(),
        capability: pair(facts.capability),
        multiprocessors: facts.multiprocessors,
        clock_mhz: facts.clock_mhz,
        uuid: facts.uuid.clone(),
        driver: pair(facts.driver),
    };
    let mut tasks = match Tasks::new(&bench) {
        Ok(tasks) => tasks,
        Err(error) => return protocol::write(output, &Reply::NoDevice(error.to_string()), &[]),
    };
    let mut libraries = Libraries::default();
    protocol::write(output, &Reply::Ready(device), &[])?;
    while let Some((request, images)) = protocol::read::<Request>(input)? {
        let mut tell = |stage, seconds| protocol::write(output, &Reply::Begins(stage, seconds), &[]);
        let Answer { outcomes, peers, lost } = answer(&mut tasks, &mut libraries, &request, &images, &mut tell)?;
        let outcomes = outcomes.into_iter().map(Into::into).collect();
        protocol::write(output, &Reply::Done { outcomes, peers, lost }, &[])?;
        if lost {
            // Nothing can be freed in order any more; the process's end frees it.
            std::process::exit(0);
        }
    }
    Ok(())
}

/// What became of a request.
struct Answer {
    outcomes: Vec<Result<Timing, Failure>>,
    peers: Vec<Result<PeerTiming, String>>,
    /// Whether the context is lost.
    lost: bool,
}

/// Measures the candidates of a request.
fn answer(
    tasks: &mut Tasks<'_>,
    libraries: &mut Libraries,
    request: &Request,
    images: &[u8],
    tell: &mut Tell<'_>,
) -> io::Result<Answer> {
    let bench = tasks.bench;
    let not_timed = || Err("nothing that it stands beside was timed".to_string());
    let mut peers: Vec<Result<PeerTiming, String>> = request.peers.iter().map(|_| not_timed()).collect();
    let all_fail = |why: &Failure| request.candidates.iter().map(|_| Err(why.clone())).collect::<Vec<_>>();
    let (task, differ) = match tasks.get(&request.workload, request.seed, tell) {
        Ok(found) => found,
        Err(Stop::Gone(error)) => return Err(error),
        Err(Stop::Failed(why)) => return Ok(Answer { outcomes: all_fail(&why), peers, lost: false }),
        Err(Stop::Lost(why)) => return Ok(Answer { outcomes: all_fail(&why), peers, lost: true }),
    };
    let mut rest = images;
    let mut outcomes: Vec<Result<(Ready<'_>, Timing), Failure>> = vec![];
    let mut lost = None;
    for candidate in &request.candidates {
        let mut prepared = || -> Result<(Ready<'_>, Timing), Stop> {
            tell(Stage::Load, 30.0)?;
            let ready = Ready::load(bench, task, candidate, &mut rest)?;
            let timing = ready.check(bench, task, differ, tell)?;
            Ok((ready, timing))
        };
        match prepared() {
            Ok(ready) => outcomes.push(Ok(ready)),
            Err(Stop::Gone(error)) => return Err(error),
            Err(Stop::Failed(why)) => outcomes.push(Err(why)),
            Err(Stop::Lost(why)) => {
                outcomes.push(Err(why));
                lost = Some(outcomes.len());
                break;
            }
        }
    }
    let mut result = Ok(());
    if lost.is_none() {
        result = if request.compare {
            compare(bench, task, libraries, request, &mut outcomes, &mut peers, tell)
        } else {
            outcomes.iter_mut().flatten().try_for_each(|(ready, timing)| {
                time(bench, task, ready, timing, &request.sampling, request.best_us, tell)
            })
        };
    }
    let stopped = match result {
        Ok(()) => None,
        Err(Stop::Gone(error)) => return Err(error),
        Err(Stop::Failed(why)) => Some((why, false)),
        Err(Stop::Lost(why)) => Some((why, true)),
    };
    // Those that nobody got to have failed with the one that ended it.
    let also = || failure(FailureKind::Worker, "another candidate of the comparison lost the context");
    let mut all: Vec<Result<Timing, Failure>> = outcomes.into_iter().map(|o| o.map(|(_, timing)| timing)).collect();
    if lost.is_some() {
        all.iter_mut().filter(|o| o.is_ok()).for_each(|o| *o = Err(also()));
        all.resize_with(request.candidates.len(), || Err(also()));
    }
    let lost = lost.is_some() || stopped.as_ref().is_some_and(|(_, lost)| *lost);
    if let Some((why, _)) = stopped {
        all.iter_mut().filter(|o| o.is_ok()).for_each(|o| *o = Err(why.clone()));
    }
    Ok(Answer { outcomes: all, peers, lost })
}

/// Takes samples until they are enough.
fn time(
    bench: &Bench,
    task: &mut Task,
    ready: &Ready<'_>,
    timing: &mut Timing,
    sampling: &Sampling,
    best_us: Option<f64>,
    tell: &mut Tell<'_>,
) -> Result<(), Stop> {
    // What the timed runs leave there is checked as well: a kernel may be right once.
    bench.poison(&mut task.output)?;
    {
        let bound = ready.bind(bench, &task.inputs, &task.output)?;
        tell(Stage::Run, 1.0)?;
        let us = sampling.one_call(best_us, LAUNCH_US, || bench.time_launches(&bound, 1))?;
        if sampling.is_slow(us - LAUNCH_US, best_us) {
            timing.samples_us.push(us);
        } else {
            let calls = calls(us, sampling);
            tell(Stage::Time, budget_s(us, calls, sampling.most))?;
            let graph = bench.graph(&[&bound], calls, Begin::Early)?;
            // The first replay also brings the graph to the GPU.
            bench.replay(&graph)?;
            while !sampling.is_enough(&timing.samples_us) {
                timing.samples_us.push(bench.replay(&graph)?);
            }
        }
    }
    again(bench, task, ready, tell)
}

/// Checks the output once more.
fn again(bench: &Bench, task: &mut Task, ready: &Ready<'_>, tell: &mut Tell<'_>) -> Result<(), Stop> {
    tell(Stage::Check, ready.check_s())?;
    let output = bench.download(&task.output)?;
    let checked = task.data.check(&output.data, ready.reach);
    checked.map(drop).map_err(|mismatch| {
        failure(FailureKind::WrongAnswer, format!("right at first, wrong when it ran again: {mismatch}")).into()
    })
}

/// What is compared: a candidate, or a library's way of doing the same.
enum Contestant<'a> {
    Candidate { warm: Bound<'a>, cold: Vec<Bound<'a>> },
    Library { way: &'a PeerWay<'a>, warm: Vec<&'a Guarded>, cold: Vec<Vec<&'a Guarded>> },
}

impl Contestant<'_> {
    /// The microseconds of one call, with those of launching its graph.
    fn time_once(&self, bench: &Bench) -> Result<f64, Stop> {
        least_us(bench, &self.warm(bench, 1, Begin::Early)?, 2)
    }

    /// Whether its calls can begin before those in front of them have ended. A library's do as the library launches them.
    fn begins_early(&self) -> bool {
        matches!(self, Contestant::Candidate { warm, .. } if warm.begins_early())
    }

    /// Calls on the same operands.
    fn warm<'s>(&'s self, bench: &'s Bench, calls: usize, begin: Begin) -> Result<Graph<'s>, Stop> {
        match self {
            Contestant::Candidate { warm, .. } => Ok(bench.graph(&[warm], calls, begin)?),
            Contestant::Library { way, warm, .. } => Ok(way.graph(bench, std::slice::from_ref(warm), calls)?),
        }
    }

    /// Calls on other operands each.
    fn cold<'s>(&'s self, bench: &'s Bench, calls: usize, begin: Begin) -> Result<Graph<'s>, Stop> {
        match self {
            Contestant::Candidate { cold, .. } => {
                Ok(bench.graph(&cold.iter().collect::<Vec<&Bound<'_>>>(), calls, begin)?)
            }
            Contestant::Library { way, cold, .. } => Ok(way.graph(bench, cold, calls)?),
        }
    }
}

/// Samples of all in turn: warm, and cold with buffers that together do not fit the cache.
fn compare(
    bench: &Bench,
    task: &mut Task,
    libraries: &mut Libraries,
    request: &Request,
    outcomes: &mut [Result<(Ready<'_>, Timing), Failure>],
    peers: &mut [Result<PeerTiming, String>],
    tell: &mut Tell<'_>,
) -> Result<(), Stop> {
    let sampling = &request.sampling;
    tell(Stage::Load, 60.0)?;
    let set = task.inputs.iter().map(Guarded::bytes).sum::<usize>() + task.output.bytes();
    let sets = (2 * bench.facts().l2_bytes).div_ceil(set.max(1)).clamp(1, 4096);
    let cold = (0..sets).map(|_| buffers(bench, &task.data)).collect::<Result<Vec<_>, _>>()?;
    let mut picks: Vec<Option<Pick<'_>>> = peers.iter().map(|_| None).collect();
    let asked: Vec<Option<Peer>> = request.peers.iter().map(|name| Peer::from_name(name)).collect();
    let workload = Workload::from_key(&request.workload).map_err(|cause| failure(FailureKind::Worker, cause))?;
    if outcomes.iter().any(Result::is_ok) {
        asked.iter().flatten().for_each(|peer| libraries.open(bench, *peer));
        for ((peer, pick), result) in asked.iter().zip(&mut picks).zip(peers.iter_mut()) {
            let offered = peer.ok_or("there is no such library".to_string());
            let picked = match offered.and_then(|peer| libraries.ways(bench, peer, &workload)) {
                Ok(offered) => peers::fastest(bench, task, &workload, offered, sampling, tell)?,
                Err(why) => Err(why),
            };
            match picked {
                Ok(picked) => *pick = Some(picked),
                Err(why) => *result = Err(why),
            }
        }
    }
    let mut contestants = vec![];
    for (ready, _) in outcomes.iter().flatten() {
        let cold = cold.iter().map(|(inputs, output)| ready.bind(bench, inputs, output));
        let cold = cold.collect::<Result<Vec<_>, _>>()?;
        contestants.push(Contestant::Candidate { warm: ready.bind(bench, &task.inputs, &task.output)?, cold });
    }
    for Pick { way, .. } in picks.iter().flatten() {
        let warm = peers::operands(&workload, &task.inputs, &task.output);
        let cold = cold.iter().map(|(inputs, output)| peers::operands(&workload, inputs, output)).collect();
        contestants.push(Contestant::Library { way, warm, cold });
    }
    let mut samples = interleaved(bench, &contestants, cold.len(), sampling, tell)?.into_iter();
    drop(contestants);
    for (_, timing) in outcomes.iter_mut().flatten() {
        let [warm, cold] = samples.next().unwrap_or_default();
        [timing.samples_us, timing.apart_us] = warm;
        [timing.cold_us, timing.apart_cold_us] = cold;
    }
    for (pick, result) in picks.into_iter().zip(peers) {
        let Some(Pick { way, tried, accuracy }) = pick else { continue };
        let [[samples_us, _], [cold_us, _]] = samples.next().unwrap_or_default();
        let way = way.name().to_string();
        *result = Ok(PeerTiming { way, tried, samples_us, cold_us, accuracy });
    }
    Ok(())
}

/// Samples of calls as in a captured graph, and, where they begin early there, of calls that do not.
type Samples = [Vec<f64>; 2];

/// Warm and cold samples of each contestant; sample `i` of all was taken at about the same time.
fn interleaved(
    bench: &Bench,
    contestants: &[Contestant<'_>],
    cold_sets: usize,
    sampling: &Sampling,
    tell: &mut Tell<'_>,
) -> Result<Vec<[Samples; 2]>, Stop> {
    // Of each contestant, warm and cold, its graphs.
    let (mut graphs, mut seconds) = (vec![], 0.0);
    for contestant in contestants {
        tell(Stage::Run, 1.0)?;
        let us = contestant.time_once(bench)?;
        let calls = calls(us, sampling);
        // Each set once, at least, so that none of them is still in the cache when its turn comes again.
        let cold_calls = calls.max(cold_sets).min(4096);
        let begins: &[Begin] = if contestant.begins_early() { &[Begin::Early, Begin::Behind] } else { &[Begin::Early] };
        let all = begins.len() * (calls + cold_calls);
        seconds += budget_s(us, all, sampling.compare);
        tell(Stage::Time, budget_s(us, all, 2))?;
        let warm = begins.iter().map(|begin| contestant.warm(bench, calls, *begin)).collect::<Result<Vec<_>, _>>()?;
        let cold = begins.iter().map(|begin| contestant.cold(bench, cold_calls, *begin));
        graphs.push([warm, cold.collect::<Result<Vec<_>, _>>()?]);
    }
    tell(Stage::Time, seconds)?;
    let mut samples: Vec<[Samples; 2]> = graphs.iter().map(|_| Default::default()).collect();
    for graph in graphs.iter().flatten().flatten() {
        bench.replay(graph)?;
    }
    for temperature in 0..2 {
        for round in 0..sampling.compare {
            for i in 0..graphs.len() {
                // The first in a round is another one each time.
                let at = (i + round) % graphs.len();
                for (samples, graph) in samples[at][temperature].iter_mut().zip(&graphs[at][temperature]) {
                    samples.push(bench.replay(graph)?);
                }
            }
        }
    }
    Ok(samples)
}
