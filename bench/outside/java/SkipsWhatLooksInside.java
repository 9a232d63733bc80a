package org.apache.kafka.common.test;

import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.TestExecutionExceptionHandler;
import org.opentest4j.TestAbortedException;

/**
 * Skips tests that look into a broker's process while they wait for something.
 *
 * <p>Their waits hide the exception of {@link KafkaClusterTestKit} in a failure of their own. JUnit finds it by its
 * service file.
 */
public class SkipsWhatLooksInside implements TestExecutionExceptionHandler {
    @Override
    public void handleTestExecutionException(ExtensionContext context, Throwable failure) throws Throwable {
        for (Throwable cause = failure; cause != null; cause = cause.getCause()) {
            if (cause instanceof TestAbortedException) {
                throw cause;
            }
        }
        throw failure;
    }
}
