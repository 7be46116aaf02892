//! The official Rust gRPC client. Kinds: normal, fifo, delay, transaction, transaction-check,
//! transaction-recovery, tags, sql, large, compressed. The client has no push consumer: the mode is simple.

mod check;

use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rocketmq::conf::{ClientOption, ProducerOption, SimpleConsumerOption};
use rocketmq::model::common::{FilterExpression, FilterType};
use rocketmq::model::message::{Message, MessageBuilder, MessageView};
use rocketmq::model::transaction::{Transaction, TransactionResolution};
use rocketmq::{Producer, SimpleConsumer};
use tokio::time::sleep;

use check::{index_of, Options, Report, Sample};

type Outcome = Result<(), Box<dyn Error>>;
type Shared = Arc<Mutex<Report>>;

#[tokio::main]
async fn main() {
    let options = Arc::new(Options::parse());
    let report = Arc::new(Mutex::new(Report::new(&options)));
    let outcome = match options.action.as_str() {
        "produce" => produce(&options, &report).await,
        "half" => half(&options, &report).await,
        "consume" | "roundtrip" | "recover" => consume(&options, &report).await,
        other => Err(format!("unknown action {other}").into()),
    };
    let mut report = report.lock().unwrap();
    if let Err(error) = outcome {
        report.error = error.to_string();
    }
    std::process::exit(report.print(&options));
}

fn connection(options: &Options) -> ClientOption {
    let mut connection = ClientOption::default();
    connection.set_access_url(options.get("endpoint", "127.0.0.1:8081"));
    connection.set_enable_tls(options.get("tls", "false") == "true");
    connection.set_timeout(Duration::from_secs(10));
    if let (Ok(access_key), Ok(secret_key)) = (std::env::var("PEERS_ACCESS_KEY"), std::env::var("PEERS_SECRET_KEY")) {
        connection.set_access_key(access_key);
        connection.set_secret_key(secret_key);
    }
    // One receiver visits the queues of all brokers in turn: it must not wait 20 s at each that has nothing.
    connection.set_long_polling_timeout(Duration::from_secs(5));
    connection
}

fn message(options: &Options, index: usize) -> Result<impl Message, Box<dyn Error>> {
    let sample = Sample::new(options.run(), index, options.size());
    let mut builder = MessageBuilder::builder()
        .set_topic(options.topic())
        .set_body(sample.body)
        .set_tag(sample.tag)
        .set_keys(sample.keys)
        .set_properties(sample.properties);
    builder = match options.kind() {
        "fifo" => builder.set_message_group(sample.group),
        // This client counts in whole seconds, unlike most others.
        "delay" => {
            let due = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as u64 + options.delay();
            builder.set_delivery_timestamp(due.div_ceil(1000) as i64)
        }
        kind if kind.starts_with("transaction") => builder.enable_transaction(),
        _ => builder,
    };
    Ok(builder.build()?)
}

async fn start_producer(options: &Arc<Options>, report: &Shared) -> Result<Producer, Box<dyn Error>> {
    let mut setup = ProducerOption::default();
    setup.set_topics(vec![options.topic()]);
    let mut producer = if options.transactional() {
        let (known, checked) = (options.clone(), report.clone());
        let decide = move |_, message: MessageView| decide(&known, &checked, &message);
        Producer::new_transaction_producer(setup, connection(options), Box::new(decide))?
    } else {
        Producer::new(setup, connection(options))?
    };
    producer.start().await?;
    Ok(producer)
}

/// Commits all but the messages that are to be rolled back, when the server asks; `half` leaves them open.
fn decide(options: &Options, report: &Shared, message: &MessageView) -> TransactionResolution {
    let Some(index) = index_of(message, options.run()) else { return TransactionResolution::UNKNOWN };
    if options.action == "half" {
        return TransactionResolution::UNKNOWN;
    }
    report.lock().unwrap().seen(&format!("check of {index}"));
    if index < options.count { TransactionResolution::COMMIT } else { TransactionResolution::ROLLBACK }
}

async fn produce(options: &Arc<Options>, report: &Shared) -> Outcome {
    if options.kind() == "transaction-check" {
        expect_checks(options, report);
    }
    let producer = start_producer(options, report).await?;
    for index in 0..options.count + options.rolled_back() {
        send(&producer, options, index).await?;
        report.lock().unwrap().sent += 1;
    }
    // Unresolved transactions are asked about later; stay to answer.
    if options.kind() == "transaction-check" {
        arrivals(options, report).await;
    }
    producer.shutdown().await?;
    Ok(())
}

async fn send(producer: &Producer, options: &Options, index: usize) -> Outcome {
    let message = message(options, index)?;
    if !options.transactional() {
        producer.send(message).await?;
        return Ok(());
    }
    let transaction = producer.send_transaction_message(message).await?;
    match options.kind() {
        "transaction" if index < options.count => transaction.commit().await?,
        "transaction" => transaction.rollback().await?,
        _ => {}
    }
    Ok(())
}

/// Send messages whose transactions stay open, tell, and wait to be killed.
async fn half(options: &Arc<Options>, report: &Shared) -> Outcome {
    let producer = start_producer(options, report).await?;
    for index in 0..options.count + options.rolled_back() {
        send(&producer, options, index).await?;
    }
    println!("{{\"halves\": {}}}", options.count + options.rolled_back());
    sleep(Duration::from_secs(options.number("timeout", 60))).await;
    Err("nobody killed this producer".into())
}

fn expect_checks(options: &Options, report: &Shared) {
    let mut report = report.lock().unwrap();
    (0..options.count + options.rolled_back()).for_each(|index| report.expect(format!("check of {index}")));
}

async fn consume(options: &Arc<Options>, report: &Shared) -> Outcome {
    start_simple(options, report).await?;
    sleep(Duration::from_secs(1)).await;
    // Kept to answer checks until all has arrived.
    let mut _recovering = None;
    match options.action.as_str() {
        "roundtrip" => produce(options, report).await?,
        "recover" => {
            expect_checks(options, report);
            _recovering = Some(start_producer(options, report).await?);
        }
        _ => {}
    }
    arrivals(options, report).await;
    Ok(())
}

async fn arrivals(options: &Options, report: &Shared) {
    let deadline = Instant::now() + Duration::from_secs(options.number("timeout", 60));
    while Instant::now() < deadline && !report.lock().unwrap().complete() {
        sleep(Duration::from_millis(10)).await;
    }
    report.lock().unwrap().settled();
    // A moment longer for duplicates.
    sleep(Duration::from_secs(1)).await;
}

fn subscription(options: &Options) -> FilterExpression {
    match options.kind() {
        "sql" => FilterExpression::new(FilterType::Sql, "index between 3 and 7"),
        "tags" => FilterExpression::new(FilterType::Tag, "tag0 || tag2"),
        _ => FilterExpression::new(FilterType::Tag, options.get("tags", "*")),
    }
}

async fn start_simple(options: &Arc<Options>, report: &Shared) -> Outcome {
    let mut setup = SimpleConsumerOption::default();
    setup.set_consumer_group(options.group());
    setup.set_topics(vec![options.topic()]);
    let mut consumer = SimpleConsumer::new(setup, connection(options))?;
    consumer.start().await?;
    let (options, report) = (options.clone(), report.clone());
    tokio::spawn(async move {
        loop {
            if let Err(error) = receive(&consumer, &options, &report).await {
                let mut report = report.lock().unwrap();
                if !report.complete() {
                    report.receive_error = error.to_string();
                }
            }
        }
    });
    Ok(())
}

async fn receive(consumer: &SimpleConsumer, options: &Options, report: &Shared) -> Outcome {
    let received = consumer
        .receive_with(options.topic(), &subscription(options), 32, Duration::from_secs(30))
        .await;
    // The pause keeps a server that always fails from being asked in a tight loop.
    if received.is_err() {
        sleep(Duration::from_millis(100)).await;
    }
    for message in received? {
        consumer.ack(&message).await?;
        report.lock().unwrap().take(options, &message);
    }
    Ok(())
}
